# SPDX-License-Identifier: Apache-2.0
# Compiler settings of our own code, and the functions that every directory uses.
include(GoogleTest)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths below the source tree count relative to it: another checkout finds the same objects.
  # The sloppiness is what it asks for before it looks at precompiled headers. In depend mode it
  # takes the headers from the compiler's list, and so need not run the preprocessor first.
  set(ccache_launcher env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_launcher})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
  # Without it mold 1.10 makes a program that cannot be loaded where the text ends in the last bytes
  # of a page and an empty TLS section follows: RELRO then begins in a page that is not mapped
  # ("cannot apply additional memory protection after relocation").
  add_link_options(-Wl,-z,separate-loadable-segments)
endif()
if(HPCTL_SANITIZE)
  add_compile_options(-fsanitize=${HPCTL_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HPCTL_SANITIZE})
  # libFuzzer (tests/fuzz) sees which edges an input takes. A number without a place in the type
  # that it is converted to is an error there too.
  if(HPCTL_LIBFUZZER)
    add_compile_options(-fsanitize=fuzzer-no-link,float-cast-overflow)
  endif()
  # Undefined behaviour ends a program by a trap, because the calls that would describe it are a
  # third of the compilation. ASAN_OPTIONS=handle_sigill=1 makes asan's report name the line. Traps
  # cannot check vptr.
  if(HPCTL_SANITIZE MATCHES undefined)
    add_compile_options(-fsanitize-undefined-trap-on-error -fno-sanitize=vptr)
  endif()
endif()
# gcc collects its own garbage while it reads headers, which takes a seventh of a compilation here.
# Without that a batch needs 1.4 GB, under the address sanitizer 2.0 GB.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(--param=ggc-min-expand=1000 --param=ggc-min-heapsize=2000000)
endif()
# The same source gives the same object wherever the tree lies.
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)

# Includes are written from the repository root; warnings are errors in our code only, and not for a
# compiler that we have not tried.
option(HPCTL_WARNINGS_ARE_ERRORS "Refuse code that the compiler warns of" ON)
add_library(hp_options INTERFACE)
target_include_directories(hp_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(hp_options INTERFACE -Wall -Wextra)
if(HPCTL_WARNINGS_ARE_ERRORS)
  target_compile_options(hp_options INTERFACE -Werror)
endif()
# Of text assigned to a std::string, gcc 12 says at -O2 that it overlaps itself (gcc's bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(hp_options INTERFACE -Wno-restrict)
endif()
# gcc 12's flow analysis is wrong about instrumented code (std::function inside <regex>, for one);
# the release preset has this warning.
if(HPCTL_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(hp_options INTERFACE -Wno-maybe-uninitialized)
endif()
if(HPCTL_SANITIZE MATCHES thread)
  target_compile_options(hp_options INTERFACE -Wno-tsan)
endif()

# Half of a compilation is reading headers. With HPCTL_UNITY the compiler reads the sources of a
# library or program 24 at a time: several times as quick from nothing, slower after a change to one
# file. The preset dev compiles each file alone, and scripts/check_alone.sh finds missing includes.
option(HPCTL_UNITY "Compile the sources of a library or program in batches" OFF)

# hp_batch(TARGET): compiles TARGET's sources in batches if HPCTL_UNITY is on. A source that has
# compiler options of its own, or SKIP_UNITY_BUILD_INCLUSION, stays alone. The batches of CMake name
# absolute paths; these name paths from the repository's root, so that ccache finds the objects of
# another checkout. They are written when the directory has been read, with all its properties.
function(hp_batch target)
  if(HPCTL_UNITY)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL hp_write_batches ${target})")
  endif()
endfunction()

function(hp_write_batches target)
  get_target_property(sources ${target} SOURCES)
  set(compiled)
  set(batch)
  set(number 0)
  foreach(source IN LISTS sources)
    set(alone OFF)
    foreach(property SKIP_UNITY_BUILD_INCLUSION COMPILE_OPTIONS GENERATED)
      get_source_file_property(value ${source} ${property})
      if(value)
        set(alone ON)
      endif()
    endforeach()
    if(alone OR NOT source MATCHES "[.]cc$")
      list(APPEND compiled ${source})
    else()
      list(APPEND batch ${source})
    endif()
    list(LENGTH batch length)
    if(length EQUAL 24)
      hp_write_batch()
    endif()
  endforeach()
  if(batch)
    hp_write_batch()
  endif()
  set_property(TARGET ${target} PROPERTY SOURCES ${compiled})
endfunction()

# Writes the caller's batch, and goes on to the next.
macro(hp_write_batch)
  set(text "")
  foreach(source IN LISTS batch)
    get_filename_component(source ${source} ABSOLUTE)
    file(RELATIVE_PATH source ${CMAKE_SOURCE_DIR} ${source})
    string(APPEND text "#include \"${source}\"\n")
  endforeach()
  set(file ${CMAKE_CURRENT_BINARY_DIR}/batches/${target}/batch_${number}.cc)
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
  list(APPEND compiled ${file})
  math(EXPR number "${number} + 1")
  set(batch)
endmacro()

# The preset asan has -Og: the optimiser takes half of a compilation. The trainer's own loops have
# their own flags in every preset (trainer/CMakeLists.txt).

# The thread sanitizer's preset builds what its tests need, and no more.
set(hp_on_demand EXCLUDE_FROM_ALL FALSE)
if(HPCTL_SANITIZE MATCHES thread)
  set(hp_on_demand EXCLUDE_FROM_ALL TRUE)
endif()

# hp_library(NAME SOURCES a.cc ... LIBS public dependencies ...)
function(hp_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE hp_options PUBLIC ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES ${hp_on_demand})
  hp_batch(${name})
endfunction()

# hp_program(NAME SOURCES main.cc ... LIBS ...): lands in build/PRESET/bin
function(hp_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE hp_options ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES ${hp_on_demand})
  hp_batch(${name})
endfunction()

# A test's own code runs once: there the optimiser gains little, and costs a third of the
# compilation (decision 0806).
set(hp_test_optimisation -O0)
if(HPCTL_SANITIZE MATCHES thread)
  set(hp_test_optimisation -O1)
endif()

set(hp_test_environment "HPCTL_BIN=${CMAKE_BINARY_DIR}/bin")
if(HPCTL_SANITIZE MATCHES address)
  # With stacks of 30 functions, LibTorch's processes spend a tenth of their time on recording them.
  list(APPEND hp_test_environment "ASAN_OPTIONS=handle_sigill=1:malloc_context_size=8")
endif()

# Tests on Slurm wait for its timeouts most of the time. They start first, and half as many again
# run at once as there are processors, each in a lane; other tests run beside them.
cmake_host_system_information(RESULT hp_slurm_lanes QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR hp_slurm_lanes "(3 * ${hp_slurm_lanes} + 1) / 2")

# hp_embed(TARGET FILE NAME): for TARGET's sources a header beside FILE, to be included by FILE's
# name with .h for its ending, with FILE's text as `inline constexpr char hpctl::NAME[]`.
function(hp_embed target file name)
  file(READ ${file} text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(RELATIVE_PATH header ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  string(REGEX REPLACE "[.][a-z]+$" ".h" header ${header})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/${header} @ONLY CONTENT
"#pragma once
namespace hpctl {
inline constexpr char @name@[] = R\"hp_embed(@text@)hp_embed\";
}  // namespace hpctl
")
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endfunction()

# Targets: `programs` has what packages ship (cmake/packages.cmake adds them), `tests` every test of
# this preset with the programs that it starts, `landing_tests` those that scripts/test.sh runs
# without --all.
add_custom_target(programs)
add_custom_target(tests)
add_custom_target(landing_tests)

# hp_test(NAME SOURCES x_test.cc ... LIBS ... [LABELS ...] [TIMEOUT seconds] [ENVIRONMENT ...]
#         [ONE_THREAD y_test.cc ...] [TORCH] [PROCESSORS n]
#         [CASES [SERIAL] [ALWAYS case ...] [EXTENDED case ...]])
#
# A GoogleTest program, one entry of ctest. ONE_THREAD names sources whose tests have one thread;
# the thread sanitizer's preset leaves them out. TORCH: its sources include LibTorch. TIMEOUT is
# 300 s unless given, and three times as much under a sanitizer. PROCESSORS: a test that keeps more
# than one busy counts as so many of the tests that run at once (default 1).
#
# CASES is for programs whose cases start real processes: each case is an entry NAME.Suite.Case with
# a time limit of its own and the label `processes`, so scripts/run_ctest.sh may run it again. The
# cases that EXTENDED names, or that ALWAYS does not name, get the label `extended`. Both take
# regular expressions of whole names. SERIAL: alone on the machine.
#
# Labels say in which preset scripts/test.sh runs a test (docs/contributing.md).
function(hp_test name)
  cmake_parse_arguments(ARG "CASES;SERIAL;TORCH" "TIMEOUT;PROCESSORS"
                        "SOURCES;ONE_THREAD;LIBS;LABELS;ENVIRONMENT;ALWAYS;EXTENDED" ${ARGN})
  if(NOT HPCTL_SANITIZE MATCHES thread)
    list(APPEND ARG_SOURCES ${ARG_ONE_THREAD})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  hp_batch(${name})
  target_link_libraries(${name} PRIVATE hp_options ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${hp_test_optimisation} -pthread)
  if(ARG_TORCH AND TARGET hp_torch_test_headers)
    target_precompile_headers(${name} REUSE_FROM hp_torch_test_headers)
  elseif(TARGET hp_test_headers)
    target_precompile_headers(${name} REUSE_FROM hp_test_headers)
  endif()
  set(launcher)
  if(HPCTL_SANITIZE MATCHES thread)
    set(launcher ${CMAKE_SOURCE_DIR}/tests/tsan/run)
    set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR ${launcher})
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  if(HPCTL_SANITIZE)
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  set(ARG_ENVIRONMENT "${hp_test_environment};${ARG_ENVIRONMENT}")
  if(ARG_CASES)
    list(APPEND ARG_LABELS processes)
    hp_test_cases(${name})
  else()
    add_test(NAME ${name} COMMAND ${launcher} $<TARGET_FILE:${name}>)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                         ENVIRONMENT "${ARG_ENVIRONMENT}" PROCESSORS ${ARG_PROCESSORS})
  endif()
  hp_test_program(${name} ${ARG_LABELS})
endfunction()

# hp_test_cases(NAME): an entry for each case, with the caller's ARG_*. GoogleTest lists the cases
# after the program is built; a file beside it gives each its labels and limits when ctest starts.
function(hp_test_cases name)
  gtest_discover_tests(${name} TEST_PREFIX ${name}. NO_PRETTY_VALUES DISCOVERY_TIMEOUT 120)
  set(slurm OFF)
  if(slurm IN_LIST ARG_LABELS)
    set(slurm ON)
  endif()
  set(always ".*")
  if(ARG_ALWAYS)
    list(JOIN ARG_ALWAYS "|" always)
  endif()
  set(extended "no case")
  if(ARG_EXTENDED)
    list(JOIN ARG_EXTENDED "|" extended)
  endif()
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_cases.cmake)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT [[
foreach(entry IN LISTS @name@_TESTS)
  string(REGEX REPLACE "^@name@[.]" "" case "${entry}")
  set(labels "@ARG_LABELS@")
  if(NOT case MATCHES "^(@always@)$" OR case MATCHES "^(@extended@)$")
    list(APPEND labels extended)
  endif()
  set_tests_properties("${entry}" PROPERTIES LABELS "${labels}" TIMEOUT @ARG_TIMEOUT@
                       ENVIRONMENT "@ARG_ENVIRONMENT@" RUN_SERIAL "@ARG_SERIAL@"
                       PROCESSORS @ARG_PROCESSORS@)
  if(@slurm@)
    string(LENGTH "${case}" lane)
    math(EXPR lane "${lane} % @hp_slurm_lanes@")
    set_tests_properties("${entry}" PROPERTIES COST 1000 RESOURCE_LOCK slurm${lane})
  endif()
endforeach()
set(patterns "@ARG_ALWAYS@;@ARG_EXTENDED@")
foreach(pattern IN LISTS patterns)
  set(found ${@name@_TESTS})
  list(FILTER found INCLUDE REGEX "^@name@[.](${pattern})$")
  if(pattern AND @name@_TESTS AND NOT found)
    message(FATAL_ERROR "@name@ has no case ${pattern}; CMakeLists.txt names it")
  endif()
endforeach()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

# hp_test_program(NAME LABEL...): puts a program into `tests` and `landing_tests` of the presets
# that its tests run in, and into no other target where this preset does not run them.
function(hp_test_program name)
  set(labels ${ARGN})
  set(sanitizer "")
  if(HPCTL_SANITIZE MATCHES thread)
    set(sanitizer tsan)
  elseif(HPCTL_SANITIZE)
    set(sanitizer asan)
  endif()
  if(NOT sanitizer)
    add_dependencies(tests ${name})
    if(NOT asan IN_LIST labels AND NOT tsan IN_LIST labels AND NOT extended IN_LIST labels)
      add_dependencies(landing_tests ${name})
    endif()
  elseif(sanitizer IN_LIST labels)
    add_dependencies(tests ${name})
    add_dependencies(landing_tests ${name})
  elseif("${sanitizer}_too" IN_LIST labels)
    add_dependencies(tests ${name})
  else()
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
endfunction()
