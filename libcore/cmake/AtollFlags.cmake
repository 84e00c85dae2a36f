# Flags every translation unit gets. No -march=native: login and compute nodes differ, kernels choose at run time.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
# Assertions guard invariants in Debug only; users of a release build keep line numbers in their back traces.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g -DNDEBUG")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

add_compile_definitions($<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
# The C++ bindings that old MPIs add to mpi.h want a library of their own.
add_compile_definitions("$<$<COMPILE_LANGUAGE:CXX,CUDA>:OMPI_SKIP_MPICXX;MPICH_SKIP_MPICXX>")
# nvcc has words of its own; what is host code in a .cu file is held to its own warnings.
set(ATOLL_NOT_CUDA "$<NOT:$<COMPILE_LANGUAGE:CUDA>>")
add_compile_options("$<${ATOLL_NOT_CUDA}:-Wall;-Wextra>")
add_compile_options("$<$<COMPILE_LANGUAGE:C>:-Wshadow;-Wstrict-prototypes;-Wmissing-prototypes>")
if(ATOLL_WERROR)
  add_compile_options("$<${ATOLL_NOT_CUDA}:-Werror>" "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
endif()
if(ATOLL_SANITIZE)
  add_compile_options(-fsanitize=${ATOLL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  # Reports need line numbers, not variables: a third off the time of the compiler.
  add_compile_options($<$<CONFIG:Debug>:-g1>)
  add_link_options(-fsanitize=${ATOLL_SANITIZE})
endif()
if(ATOLL_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ATOLL_FUZZ needs clang, found ${CMAKE_C_COMPILER_ID}: -DCMAKE_C_COMPILER=clang")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link) # coverage that steers the mutations; see regression/fuzz
endif()
if(ATOLL_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# Relative run paths, so that both the build tree and an installed prefix may be moved as a whole.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR}
           OUTPUT_VARIABLE ATOLL_BIN_TO_LIB)
