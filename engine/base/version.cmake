# Writes version.cc if its contents would change: cmake -D VERSION=... -D REVISION=... -D SOURCE=...
# -D TEMPLATE=... -D OUTPUT=... -P version.cmake. Without a REVISION, git provides it if SOURCE is a
# checkout.
if(NOT REVISION AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git describe --always --dirty --exclude=* WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(REVISION "")
  endif()
endif()
if(REVISION)
  string(APPEND VERSION "+${REVISION}")
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
