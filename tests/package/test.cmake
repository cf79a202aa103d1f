# Installs the engine from the folder BUILD into WORK. Builds and runs a project there that finds the
# engine with find_package and generates text with MODEL. Usage: cmake -D BUILD=... -D WORK=...
# -D MODEL=... -D PREFIX_PATH=... -D GENERATOR=... -D OPTIONS=... -P test.cmake.
file(REMOVE_RECURSE ${WORK})
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD} --component engine --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build
  -D "CMAKE_PREFIX_PATH=${WORK}/prefix;${PREFIX_PATH}" ${OPTIONS})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer ${MODEL})
