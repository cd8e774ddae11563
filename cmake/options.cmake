# SPDX-License-Identifier: Apache-2.0
# Compiler settings of our own code, and the two functions every directory uses.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths below the source tree count relative to it: another checkout finds the same objects.
  # The sloppiness is what it asks for before it looks at precompiled headers.
  set(ccache_launcher env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
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

# Includes are written from the repository root; warnings are errors in our code only.
add_library(hp_options INTERFACE)
target_include_directories(hp_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(hp_options INTERFACE -Wall -Wextra -Werror)
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
# library or program 24 at a time: several times as quick from nothing, slower after a change
# to one file. The release preset compiles each alone, so that an include that is missing is found.
option(HPCTL_UNITY "Compile the sources of a library or program in batches" OFF)
set(hp_unity UNITY_BUILD ${HPCTL_UNITY} UNITY_BUILD_BATCH_SIZE 24)

# The presets fast and asan have -Og: the optimiser takes half of a compilation, and nearly all of
# this code waits or calls libraries. What does neither has its own flags (trainer/CMakeLists.txt).

# The thread sanitizer's preset builds what its tests need, and no more.
set(hp_on_demand)
if(HPCTL_SANITIZE MATCHES thread)
  set(hp_on_demand EXCLUDE_FROM_ALL TRUE)
endif()

# hp_library(NAME SOURCES a.cc ... LIBS public dependencies ...)
function(hp_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE hp_options PUBLIC ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES ${hp_unity} ${hp_on_demand})
endfunction()

# hp_program(NAME SOURCES main.cc ... LIBS ...): lands in build/PRESET/bin
function(hp_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE hp_options ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES ${hp_unity} ${hp_on_demand})
endfunction()

# A test's own code runs once: there the optimiser gains little, and costs a third of the
# compilation (decision 0806). The release preset has it for the warnings of its flow analysis.
set(hp_test_optimisation -O1)
if(HPCTL_UNITY AND NOT HPCTL_SANITIZE MATCHES thread)
  set(hp_test_optimisation -O0)
endif()

set(hp_test_environment "HPCTL_BIN=${CMAKE_BINARY_DIR}/bin")
if(HPCTL_SANITIZE MATCHES address)
  # Of who allocated what a report is about, the nearest functions: with 30 of them LibTorch's
  # processes spend a tenth of their time on remembering them.
  list(APPEND hp_test_environment "ASAN_OPTIONS=handle_sigill=1:malloc_context_size=8")
endif()

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

# hp_test(NAME SOURCES x_test.cc ... LIBS ... [LABELS unit|sim|integration|fault ...]
#         [ONE_THREAD y_test.cc ...] [TIMEOUT seconds]): a GoogleTest program, one ctest entry.
# Sources whose tests have one thread are no part of it under the thread sanitizer.
function(hp_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;ONE_THREAD;LIBS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT HPCTL_SANITIZE MATCHES thread)
    list(APPEND ARG_SOURCES ${ARG_ONE_THREAD})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
                        ${hp_unity})
  target_link_libraries(${name} PRIVATE hp_options ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${hp_test_optimisation} -pthread)
  if(TARGET hp_test_headers)
    target_precompile_headers(${name} REUSE_FROM hp_test_headers)
  endif()
  if(HPCTL_SANITIZE MATCHES thread)
    add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/tsan/run $<TARGET_FILE:${name}>)
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  # A test of a part or of faults runs once in scripts/test.sh, under the address sanitizer; what
  # depends on the optimiser (label optimised) and what starts many processes runs without it.
  if(ARG_LABELS MATCHES "(^|;)(unit|fault)(;|$)" AND NOT "heavy" IN_LIST ARG_LABELS
     AND NOT "optimised" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS asan)
    set_property(GLOBAL APPEND PROPERTY hp_asan_tests ${name})
  endif()
  # A sanitizer preset builds the tests that scripts/test.sh runs in it; the others on demand.
  if(HPCTL_SANITIZE MATCHES thread)
    if(NOT "tsan" IN_LIST ARG_LABELS)
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
  elseif(HPCTL_SANITIZE AND "heavy" IN_LIST ARG_LABELS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(HPCTL_SANITIZE)
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                       ENVIRONMENT "${hp_test_environment};${ARG_ENVIRONMENT}")
endfunction()

# hp_all_but_asan(): the target all_but_asan, which is everything but the tests labelled asan
function(hp_all_but_asan)
  get_property(asan_tests GLOBAL PROPERTY hp_asan_tests)
  set(directories ${CMAKE_SOURCE_DIR})
  add_custom_target(all_but_asan)
  while(directories)
    list(POP_FRONT directories directory)
    get_property(below DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
    list(APPEND directories ${below})
    get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(excluded ${target} EXCLUDE_FROM_ALL)
      if(NOT excluded AND NOT target STREQUAL all_but_asan AND NOT target IN_LIST asan_tests)
        add_dependencies(all_but_asan ${target})
      endif()
    endforeach()
  endwhile()
endfunction()
