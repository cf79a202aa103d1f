# find_package(Triptych) gives triptych::hosting, which loads models to serve, triptych::serving and
# the other libraries of the engine, a folder of it each.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(PkgConfig)
find_dependency(nlohmann_json)
find_dependency(OpenSSL)
find_dependency(Torch)
pkg_check_modules(HWY REQUIRED QUIET IMPORTED_TARGET libhwy)
pkg_check_modules(ICU REQUIRED QUIET IMPORTED_TARGET icu-uc)
pkg_check_modules(PCRE2 REQUIRED QUIET IMPORTED_TARGET libpcre2-8)

include(${CMAKE_CURRENT_LIST_DIR}/TriptychTargets.cmake)
target_include_directories(triptych::torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
