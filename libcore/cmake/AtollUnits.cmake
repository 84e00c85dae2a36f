# One call per library, app and test.
#
#   atoll_library(core SOURCES ... PACKAGES ... [PUBLIC_PACKAGES ...])        libcore itself
#   atoll_module(NAME SOURCES ... [USES core topo ...] [PACKAGES ...] [PUBLIC_PACKAGES ...])
#   atoll_app(NAME SOURCES ... [USES ...] [PACKAGES ...])                     a program in bin/
#   atoll_test(NAME SOURCES x.c [OBJECTS y.c ...] [NP n] [USES ...] [PACKAGES ...] [LABELS ...] [TIMEOUT s] [ARGS ...]
#              [ENV A=b ...] [SERIAL])
#   atoll_test(NAME OF OTHER [NP n] [LABELS ...] [TIMEOUT s] [ARGS ...] [ENV A=b ...] [SERIAL])
#   atoll_case(NAME SCRIPT x.sh [LABELS ...] [TIMEOUT s] [PROCESSORS n] [LOCK name] [ARGS ...] [ENV A=b ...] [SERIAL])
#   atoll_finish()                                                            once, from the top
#
# USES names units of this tree and is checked against the table of arrows below; PACKAGES names outside packages
# (AtollPackages.cmake). PUBLIC_PACKAGES are those whose headers a public header includes. Every unit uses core. A
# test belongs to the room of its folder, uses that room's unit and may include the room's src/ privately; hidden
# symbols are not visible to it, so white-box tests name the .c file, below src/, among OBJECTS, or among their SOURCES
# when it must be compiled otherwise. OF: the program of another test, otherwise started.
#
# PROCESSORS are cores that a test keeps busy: 1, also of several ranks, which start and wait for each other most of the
# time. Tests of one LOCK do not run at once, SERIAL ones, which compare times, with no other; those of long TIMEOUT
# begin first. Exit 77 means skipped, with the reason printed.
include_guard(GLOBAL)
include(AtollArrows)

# --- the arrows: unit -> units it may name in USES (core is always allowed) -----------------------------------------
set(ATOLL_ARROWS_core "")
set(ATOLL_ARROWS_topo "")
set(ATOLL_ARROWS_model "")
set(ATOLL_ARROWS_kernel "")
set(ATOLL_ARROWS_data "")
set(ATOLL_ARROWS_token "")
set(ATOLL_ARROWS_weights model)
set(ATOLL_ARROWS_island topo)
set(ATOLL_ARROWS_profile topo)
set(ATOLL_ARROWS_ctapipe kernel)
set(ATOLL_ARROWS_layer model kernel ctapipe)
set(ATOLL_ARROWS_plan island topo model layer profile)
set(ATOLL_ARROWS_ckpt model plan)
set(ATOLL_ARROWS_train layer plan data ckpt model kernel island topo profile)
set(ATOLL_ARROWS_recurrent model kernel)
set(ATOLL_ARROWS_rl recurrent)
set(ATOLL_ARROWS_UNITS core topo model kernel ctapipe data token weights island profile layer plan ckpt train recurrent rl)

# Room of the calling CMakeLists.txt: the unit's name for libcore and modules/<name>, "-" elsewhere (apps, regression
# may use everything). A test/ folder belongs to the room above it.
function(atoll_room out_unit out_folder)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE where)
  if(where MATCHES "^libcore(/|$)")
    set(${out_unit} core PARENT_SCOPE)
    set(${out_folder} ${PROJECT_SOURCE_DIR}/libcore PARENT_SCOPE)
  elseif(where MATCHES "^modules/([^/]+)")
    set(${out_unit} ${CMAKE_MATCH_1} PARENT_SCOPE)
    set(${out_folder} ${PROJECT_SOURCE_DIR}/modules/${CMAKE_MATCH_1} PARENT_SCOPE)
  else()
    set(${out_unit} - PARENT_SCOPE)
    set(${out_folder} ${CMAKE_CURRENT_SOURCE_DIR} PARENT_SCOPE)
  endif()
endfunction()

# Refuse a USES edge that is not in the table, and remember it for the closure.
function(atoll_check_uses unit what uses)
  foreach(used IN LISTS uses)
    if(NOT used IN_LIST ATOLL_ARROWS_UNITS)
      message(FATAL_ERROR "${what} USES '${used}', which is not a unit (${ATOLL_ARROWS_UNITS})")
    endif()
    if(NOT unit STREQUAL "-" AND NOT used STREQUAL core AND NOT used STREQUAL unit
       AND NOT used IN_LIST ATOLL_ARROWS_${unit})
      message(FATAL_ERROR "${what} USES '${used}': no such arrow in DESIGN; '${unit}' may use core "
                          "${ATOLL_ARROWS_${unit}}")
    endif()
  endforeach()
endfunction()

function(atoll_room_uses folder unit uses)
  set_property(GLOBAL APPEND PROPERTY ATOLL_ROOM_FOLDERS ${folder})
  set_property(GLOBAL PROPERTY ATOLL_ROOM_UNIT_${folder} ${unit})
  set_property(GLOBAL APPEND PROPERTY ATOLL_ROOM_USES_${folder} ${uses})
endfunction()

function(atoll_link_packages target visibility packages)
  foreach(package IN LISTS packages)
    if(NOT TARGET AtollPackage::${package})
      message(FATAL_ERROR "${target} asks for package '${package}', which AtollPackages.cmake does not know")
    endif()
    target_link_libraries(${target} ${visibility} AtollPackage::${package})
  endforeach()
endfunction()

function(atoll_library name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;USES;PACKAGES;PUBLIC_PACKAGES")
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "atoll_library(${name}): unknown arguments ${A_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT name IN_LIST ATOLL_ARROWS_UNITS)
    message(FATAL_ERROR "unit '${name}' has no row in the table of arrows (libcore/cmake/AtollUnits.cmake)")
  endif()
  list(REMOVE_ITEM A_USES core)
  atoll_check_uses(${name} "unit ${name}" "${A_USES}")
  set(target atoll_${name})
  add_library(${target} SHARED ${A_SOURCES})
  add_library(Atoll::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name} VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} INSTALL_RPATH "$ORIGIN")
  target_include_directories(${target}
    PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src ${CMAKE_CURRENT_BINARY_DIR})
  if(NOT name STREQUAL core)
    target_link_libraries(${target} PUBLIC Atoll::core)
  endif()
  foreach(used IN LISTS A_USES)
    target_link_libraries(${target} PUBLIC Atoll::${used})
  endforeach()
  atoll_link_packages(${target} PRIVATE "${A_PACKAGES}")
  foreach(package IN LISTS A_PUBLIC_PACKAGES)
    # MPI is the only package in public headers; the exported target names CMake's own, found by AtollConfig.cmake.
    if(package STREQUAL mpi)
      target_link_libraries(${target} PUBLIC MPI::MPI_C)
    else()
      message(FATAL_ERROR "unit ${name}: public headers may include mpi.h only, not '${package}'")
    endif()
  endforeach()
  # What the library does not define must be named by its own link line.
  if(NOT ATOLL_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  set_property(GLOBAL APPEND PROPERTY ATOLL_LIBRARIES ${name})
  set_property(GLOBAL PROPERTY ATOLL_UNIT_USES_${name} ${A_USES})
  set_property(GLOBAL PROPERTY ATOLL_UNIT_FOLDER_${name} ${CMAKE_CURRENT_SOURCE_DIR})
  atoll_room_uses(${CMAKE_CURRENT_SOURCE_DIR} ${name} "${A_USES}")
endfunction()

function(atoll_module name)
  atoll_library(${name} ${ARGN})
endfunction()

# Leaks are looked for in every sanitized program, MPI's own apart (libcore/test/own_leaks.c).
function(atoll_tells_own_leaks target)
  if(NOT ATOLL_SANITIZE MATCHES "address|leak")
    return()
  endif()
  if(NOT TARGET atoll_own_leaks)
    add_library(atoll_own_leaks OBJECT ${PROJECT_SOURCE_DIR}/libcore/test/own_leaks.c)
    set_target_properties(atoll_own_leaks PROPERTIES C_VISIBILITY_PRESET default)
    atoll_link_packages(atoll_own_leaks PRIVATE mpi)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:atoll_own_leaks>)
  atoll_link_packages(${target} PRIVATE "mpi;dl")
endfunction()

function(atoll_app name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;USES;PACKAGES")
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "atoll_app(${name}): unknown arguments ${A_UNPARSED_ARGUMENTS}")
  endif()
  atoll_check_uses(- "app ${name}" "${A_USES}")
  list(REMOVE_ITEM A_USES core)
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/${ATOLL_BIN_TO_LIB}")
  foreach(used core ${A_USES})
    target_link_libraries(${name} PRIVATE Atoll::${used})
  endforeach()
  atoll_link_packages(${name} PRIVATE "${A_PACKAGES}")
  atoll_tells_own_leaks(${name})
  set_property(GLOBAL APPEND PROPERTY ATOLL_APPS ${name})
  atoll_room_uses(${CMAKE_CURRENT_SOURCE_DIR} - "${A_USES}")
endfunction()

# What every test gets, in this order, before its own ENV.
function(atoll_test_properties name labels timeout processors env)
  if(NOT timeout)
    set(timeout 60)
  endif()
  # Sanitized programs are several times slower; the promise under test is not the speed.
  if(ATOLL_SANITIZE)
    math(EXPR timeout "${timeout} * 3")
    # A damaged file may ask for absurd memory, and gets NULL as it would from malloc.
    list(PREPEND env "ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1"
         "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/regression/lib/lsan.supp:print_suppressions=0"
         "UBSAN_OPTIONS=print_stacktrace=1")
  endif()
  # Threads that spin at a barrier take the cores from other tests: a fifth of the time of those that compute.
  list(PREPEND env OMP_WAIT_POLICY=passive)
  set_tests_properties(${name} PROPERTIES
    LABELS "${labels}" TIMEOUT ${timeout} COST ${timeout} PROCESSORS ${processors} SKIP_RETURN_CODE 77
    ENVIRONMENT "${env}")
endfunction()

function(atoll_test_program target folder uses packages)
  add_executable(${target} ${ARGN})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${folder}/src
    ${PROJECT_SOURCE_DIR}/libcore/test) # unit_check.h, mpi_check.h
  foreach(used IN LISTS uses)
    target_link_libraries(${target} PRIVATE Atoll::${used})
  endforeach()
  atoll_link_packages(${target} PRIVATE "${packages}")
  # Where fixtures and scratch files are, for tests that need either.
  target_compile_definitions(${target} PRIVATE
    ATOLL_TEST_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}" ATOLL_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    ATOLL_TEST_BINARY_DIR="${CMAKE_CURRENT_BINARY_DIR}")
  atoll_tells_own_leaks(${target})
  # Assertions stay on in tests, whatever the build type.
  target_compile_options(${target} PRIVATE -UNDEBUG)
endfunction()

function(atoll_test name)
  if(NOT ATOLL_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 A "SERIAL" "NP;TIMEOUT;OF" "SOURCES;OBJECTS;USES;PACKAGES;LABELS;ARGS;ENV")
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "atoll_test(${name}): unknown arguments ${A_UNPARSED_ARGUMENTS}")
  endif()
  atoll_room(unit folder)
  atoll_check_uses(${unit} "test ${name}" "${A_USES}")
  if(DEFINED A_OF)
    set(target test_${A_OF})
  else()
    set(target test_${name})
    set(packages cmocka m ${A_PACKAGES})
    if(DEFINED A_NP)
      list(APPEND packages mpi)
    endif()
    set(objects "")
    foreach(object IN LISTS A_OBJECTS)
      list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:atoll_${unit}>,INCLUDE,/src/${object}.o$>")
    endforeach()
    set(uses core ${A_USES} ${unit})
    list(REMOVE_DUPLICATES uses)
    list(REMOVE_ITEM uses -)
    atoll_test_program(${target} ${folder} "${uses}" "${packages}" ${A_SOURCES} ${objects})
  endif()
  set(work ${CMAKE_CURRENT_BINARY_DIR}/work/${name}) # tests of one program that run at once leave files with one name
  file(MAKE_DIRECTORY ${work})
  if(DEFINED A_NP)
    add_test(NAME ${name} WORKING_DIRECTORY ${work}
      COMMAND ${PROJECT_SOURCE_DIR}/regression/lib/mpi-test.sh ${A_NP} $<TARGET_FILE:${target}> ${A_ARGS})
    set(labels mpi)
  else()
    add_test(NAME ${name} WORKING_DIRECTORY ${work} COMMAND ${target} ${A_ARGS})
    set(labels unit)
  endif()
  if(A_LABELS)
    set(labels ${A_LABELS})
  endif()
  if(NOT unit STREQUAL "-")
    list(APPEND labels ${unit})
    list(REMOVE_DUPLICATES labels)
  endif()
  atoll_test_properties(${name} "${labels}" "${A_TIMEOUT}" 1 "${A_ENV}")
  set_tests_properties(${name} PROPERTIES RUN_SERIAL ${A_SERIAL})
  if(A_USES AND NOT unit STREQUAL "-")
    atoll_room_uses(${folder} ${unit} "${A_USES}")
  endif()
endfunction()

function(atoll_case name)
  if(NOT ATOLL_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 A "SERIAL" "SCRIPT;TIMEOUT;PROCESSORS;LOCK" "LABELS;ARGS;ENV")
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "atoll_case(${name}): unknown arguments ${A_UNPARSED_ARGUMENTS}")
  endif()
  cmake_path(ABSOLUTE_PATH A_SCRIPT BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE script)
  set(work ${CMAKE_CURRENT_BINARY_DIR}/work/${name})
  file(MAKE_DIRECTORY ${work})
  add_test(NAME ${name} WORKING_DIRECTORY ${work} COMMAND bash ${script} ${A_ARGS})
  if(NOT A_LABELS)
    set(A_LABELS regression)
  endif()
  if(NOT A_PROCESSORS)
    set(A_PROCESSORS 1)
  endif()
  atoll_test_properties(${name} "${A_LABELS}" "${A_TIMEOUT}" ${A_PROCESSORS}
    "ATOLL_SOURCE_DIR=${PROJECT_SOURCE_DIR};ATOLL_BUILD_DIR=${PROJECT_BINARY_DIR};ATOLL_CASE=${name};ATOLL_WORK=${work};${A_ENV}")
  set_tests_properties(${name} PROPERTIES RUN_SERIAL ${A_SERIAL})
  if(DEFINED A_LOCK)
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK ${A_LOCK})
  endif()
endfunction()

# --- once, after all rooms ----------------------------------------------------------------------------------------------

# Everything reachable over USES from `uses`, core included.
function(atoll_closure uses out)
  set(todo ${uses})
  set(seen core)
  while(todo)
    list(POP_FRONT todo unit)
    if(unit IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${unit})
    get_property(more GLOBAL PROPERTY ATOLL_UNIT_USES_${unit})
    list(APPEND todo ${more})
  endwhile()
  set(${out} "${seen}" PARENT_SCOPE)
endfunction()

# Each public header compiles alone in C and C++, each library exports what its headers declare and nothing else, and
# each program answers --version, --help and nonsense as all do.
function(atoll_public_surface headers)
  if(NOT ATOLL_TESTS)
    return()
  endif()
  set(mpi_includes ${MPI_C_INCLUDE_DIRS})
  list(TRANSFORM mpi_includes PREPEND -I)
  set(cxx "-")
  if(CMAKE_CXX_COMPILER)
    set(cxx ${CMAKE_CXX_COMPILER})
  endif()
  foreach(entry IN LISTS headers)
    string(REPLACE "|" ";" entry "${entry}")
    list(GET entry 0 header)
    list(GET entry 1 unit)
    # Only the folders this unit may see: a header that reaches further fails here.
    atoll_closure("${unit}" closure)
    set(includes "")
    foreach(used IN LISTS closure)
      get_property(folder GLOBAL PROPERTY ATOLL_UNIT_FOLDER_${used})
      if(folder)
        list(APPEND includes -I${folder}/include)
      endif()
    endforeach()
    string(REGEX REPLACE "^atoll/|\\.h$" "" short "${header}")
    string(MAKE_C_IDENTIFIER "${short}" short)
    add_test(NAME header_${short}_compiles_alone
      COMMAND ${PROJECT_SOURCE_DIR}/regression/lib/header-alone.sh ${header} ${CMAKE_C_COMPILER} ${cxx}
              ${includes} ${mpi_includes})
    atoll_test_properties(header_${short}_compiles_alone "unit;build;${unit}" 60 1 "")
  endforeach()
  get_property(libraries GLOBAL PROPERTY ATOLL_LIBRARIES)
  foreach(unit IN LISTS libraries)
    get_property(folder GLOBAL PROPERTY ATOLL_UNIT_FOLDER_${unit})
    add_test(NAME ${unit}_exports_its_headers
      COMMAND ${PROJECT_SOURCE_DIR}/regression/lib/exports.sh ${CMAKE_NM} $<TARGET_FILE:atoll_${unit}> ${folder}/include)
    atoll_test_properties(${unit}_exports_its_headers "unit;build;${unit}" 60 1 "")
  endforeach()
  get_property(apps GLOBAL PROPERTY ATOLL_APPS)
  foreach(app IN LISTS apps)
    string(MAKE_C_IDENTIFIER ${app} name)
    add_test(NAME ${name}_keeps_the_common_promises
      COMMAND ${PROJECT_SOURCE_DIR}/regression/lib/program.sh $<TARGET_FILE:${app}> ${PROJECT_VERSION})
    atoll_test_properties(${name}_keeps_the_common_promises "regression;build" 60 1 "")
  endforeach()
endfunction()

function(atoll_install libraries)
  set(targets ${libraries})
  list(TRANSFORM targets PREPEND atoll_)
  get_property(apps GLOBAL PROPERTY ATOLL_APPS)
  install(TARGETS ${targets} EXPORT AtollTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  if(apps)
    install(TARGETS ${apps} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  foreach(unit IN LISTS libraries)
    get_property(folder GLOBAL PROPERTY ATOLL_UNIT_FOLDER_${unit})
    install(DIRECTORY ${folder}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
  endforeach()

  set(config ${CMAKE_INSTALL_LIBDIR}/cmake/Atoll)
  include(CMakePackageConfigHelpers)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/libcore/cmake/AtollConfig.cmake.in
    ${PROJECT_BINARY_DIR}/AtollConfig.cmake INSTALL_DESTINATION ${config})
  # Before 1.0 a minor version may change the interface.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/AtollConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(EXPORT AtollTargets NAMESPACE Atoll:: DESTINATION ${config})
  install(FILES ${PROJECT_BINARY_DIR}/AtollConfig.cmake ${PROJECT_BINARY_DIR}/AtollConfigVersion.cmake
    DESTINATION ${config})

  # pkg-config. The prefix is found from the file's own place, so a moved installation still works. Dependants come
  # before what they use, for linkers that read left to right.
  set(ATOLL_PC_LIBS "")
  foreach(unit IN LISTS libraries)
    string(PREPEND ATOLL_PC_LIBS " -latoll_${unit}")
  endforeach()
  cmake_path(SET here NORMALIZE ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${here} OUTPUT_VARIABLE ATOLL_PC_TO_PREFIX)
  set(ATOLL_PC_MPI "")
  foreach(module ompi-c mpich MVAPICH2)
    if(PKG_CONFIG_FOUND AND NOT ATOLL_PC_MPI)
      pkg_check_modules(ATOLL_PC_${module} QUIET ${module})
      if(ATOLL_PC_${module}_FOUND)
        set(ATOLL_PC_MPI ${module})
      endif()
    endif()
  endforeach()
  configure_file(${PROJECT_SOURCE_DIR}/libcore/cmake/atoll.pc.in ${PROJECT_BINARY_DIR}/atoll.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/atoll.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  # Job files name models and corpora by relative path, so the folder goes as it is.
  install(DIRECTORY inputs DESTINATION ${CMAKE_INSTALL_DATADIR}/atoll)
  install(FILES README.md INSTALL CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
  # The pages of rooms that are built, where README.md's links find them, and the programs they explain.
  foreach(name IN LISTS libraries)
    get_property(folder GLOBAL PROPERTY ATOLL_UNIT_FOLDER_${name})
    file(GLOB pages RELATIVE ${PROJECT_SOURCE_DIR} ${folder}/*.md ${folder}/*.svg ${folder}/examples/*.c)
    foreach(page IN LISTS pages)
      cmake_path(GET page PARENT_PATH where)
      install(FILES ${page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${where})
    endforeach()
  endforeach()
endfunction()

function(atoll_finish)
  # Arrows: header -> unit, room -> units it may include.
  get_property(libraries GLOBAL PROPERTY ATOLL_LIBRARIES)
  set(headers "")
  foreach(unit IN LISTS libraries)
    get_property(folder GLOBAL PROPERTY ATOLL_UNIT_FOLDER_${unit})
    file(GLOB_RECURSE found RELATIVE ${folder}/include CONFIGURE_DEPENDS ${folder}/include/*.h)
    foreach(header IN LISTS found)
      list(APPEND headers "${header}|${unit}")
    endforeach()
  endforeach()
  get_property(folders GLOBAL PROPERTY ATOLL_ROOM_FOLDERS)
  list(REMOVE_DUPLICATES folders)
  set(rooms "")
  foreach(folder IN LISTS folders)
    get_property(unit GLOBAL PROPERTY ATOLL_ROOM_UNIT_${folder})
    get_property(uses GLOBAL PROPERTY ATOLL_ROOM_USES_${folder})
    atoll_closure("${uses}" allowed)
    list(JOIN allowed "," allowed)
    list(APPEND rooms "${folder}|${unit}|${allowed}")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/atoll-arrows.cmake @ONLY CONTENT
"set(ATOLL_ARROWS_ROOMS \"@rooms@\")
set(ATOLL_ARROWS_HEADERS \"@headers@\")
set(ATOLL_ARROWS_SOURCE \"@PROJECT_SOURCE_DIR@\")
")
  atoll_arrows_check("${rooms}" "${headers}" "${PROJECT_SOURCE_DIR}" bad)
  if(bad)
    message(FATAL_ERROR "Includes against the arrows of DESIGN:${bad}\n")
  endif()
  if(ATOLL_TESTS)
    add_test(NAME arrows_point_one_way
      COMMAND ${CMAKE_COMMAND} -DATOLL_ARROWS_TABLE=${PROJECT_BINARY_DIR}/atoll-arrows.cmake
              -P ${PROJECT_SOURCE_DIR}/libcore/cmake/AtollArrows.cmake)
    atoll_test_properties(arrows_point_one_way "unit;build" 60 1 "")
  endif()

  atoll_public_surface("${headers}")
  atoll_install("${libraries}")

  # Summary.
  get_property(apps GLOBAL PROPERTY ATOLL_APPS)
  list(JOIN libraries " " libraries)
  list(JOIN apps " " apps)
  set(text "\n  Atoll ${PROJECT_VERSION}\n")
  foreach(row
      "build type|${CMAKE_BUILD_TYPE}"
      "compiler|${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}"
      "prefix|${CMAKE_INSTALL_PREFIX}"
      "CUDA (${ATOLL_CUDA})|${ATOLL_CUDA_STATE}"
      "NCCL (${ATOLL_NCCL})|${ATOLL_NCCL_STATE}"
      "PAPI (${ATOLL_PAPI})|${ATOLL_PAPI_STATE}"
      "CBC (${ATOLL_CBC})|${ATOLL_CBC_STATE}"
      "libxsmm (${ATOLL_LIBXSMM})|${ATOLL_LIBXSMM_STATE}"
      ${ATOLL_PACKAGE_SUMMARY}
      "tests|${ATOLL_TESTS}"
      "sanitizers|${ATOLL_SANITIZE}"
      "coverage|${ATOLL_COVERAGE}"
      "warnings are errors|${ATOLL_WERROR}"
      "libraries|${libraries}"
      "programs|${apps}")
    string(REPLACE "|" ";" row "${row}")
    list(GET row 0 key)
    list(GET row 1 value)
    if(value STREQUAL "")
      set(value "none")
    endif()
    string(LENGTH "${key}" length)
    math(EXPR pad "22 - ${length}")
    string(REPEAT " " ${pad} pad)
    string(APPEND text "    ${key}${pad}${value}\n")
  endforeach()
  message(STATUS "${text}")
endfunction()
