# SPDX-License-Identifier: Apache-2.0
# What is installed where, and the Debian packages (docs/install.md, decision 1801).
#
# hpctl is in /opt/hpctl: programs that find each other in one directory, the plugin in ../lib, as
# in a bundle. What others look for elsewhere (manual pages, completions, units, links to programs)
# is where Debian has it. Destinations count from the root: `DESTDIR=ROOT cmake --install` makes the
# same tree.
if(CMAKE_INSTALL_PREFIX_INITIALIZED_TO_DEFAULT)
  set(CMAKE_INSTALL_PREFIX / CACHE PATH "The root that hpctl is installed under" FORCE)
endif()
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(hp_home opt/hpctl)

# hp_install(COMPONENT TARGETS ...): those that this build has
function(hp_install component)
  foreach(target ${ARGN})
    if(TARGET ${target})
      add_dependencies(programs ${target})
      install(TARGETS ${target} COMPONENT ${component}
              RUNTIME DESTINATION ${hp_home}/bin
              LIBRARY DESTINATION ${hp_home}/lib)
    endif()
  endforeach()
endfunction()

# hp_command(COMPONENT PROGRAM): /usr/bin has it, by a link that holds in any root
function(hp_command component program)
  set(link ${CMAKE_BINARY_DIR}/share/links/${program})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/links)
  file(CREATE_LINK ../../${hp_home}/bin/${program} ${link} SYMBOLIC)
  install(FILES ${link} DESTINATION usr/bin COMPONENT ${component})
endfunction()

# hp_manual(COMPONENT PROGRAM SECTION [VERB...]): its page, from its --help
add_custom_target(manual ALL)
function(hp_manual component program section)
  if(NOT TARGET ${program})
    return()
  endif()
  set(directory ${CMAKE_BINARY_DIR}/share/man/man${section})
  set(page ${directory}/${program}.${section})
  set(maker ${CMAKE_SOURCE_DIR}/tools/man_page.sh)
  add_custom_command(
    OUTPUT ${page}.gz
    COMMAND ${CMAKE_COMMAND} -E make_directory ${directory}
    COMMAND ${maker} $<TARGET_FILE:${program}> ${section} ${PROJECT_VERSION} ${ARGN} > ${page}
    COMMAND gzip -9nf ${page}
    DEPENDS ${program} ${maker}
    VERBATIM)
  add_custom_target(manual_${program} DEPENDS ${page}.gz)
  add_dependencies(manual manual_${program})
  install(FILES ${page}.gz DESTINATION usr/share/man/man${section} COMPONENT ${component})
endfunction()

# hp_completion(COMPONENT PROGRAM [COMMAND...]): of hpctl from its parser, of others from --help
add_custom_target(completion ALL)
function(hp_completion component program)
  if(NOT TARGET ${program})
    return()
  endif()
  set(maker ${CMAKE_SOURCE_DIR}/tools/program_completion.sh)
  set(bash_file ${program})
  set(zsh_file _${program})
  set(fish_file ${program}.fish)
  set(bash_destination usr/share/bash-completion/completions)
  set(zsh_destination usr/share/zsh/vendor-completions)
  set(fish_destination usr/share/fish/vendor_completions.d)
  set(scripts)
  foreach(shell bash zsh fish)
    set(script ${CMAKE_BINARY_DIR}/share/completion/${shell}/${${shell}_file})
    if(program STREQUAL "hpctl")
      set(command hpctl completion ${shell})
    else()
      set(command ${maker} ${shell} $<TARGET_FILE:${program}> ${ARGN})
    endif()
    add_custom_command(
      OUTPUT ${script}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/share/completion/${shell}
      COMMAND ${command} > ${script}
      DEPENDS ${program} ${maker}
      VERBATIM)
    install(FILES ${script} DESTINATION ${${shell}_destination} COMPONENT ${component})
    list(APPEND scripts ${script})
  endforeach()
  add_custom_target(completion_${program} DEPENDS ${scripts})
  add_dependencies(completion completion_${program})
endfunction()

set(hp_components cli controller agent)
hp_install(cli hpctl hpdata hpslurm)
hp_install(controller hpcontroller)
hp_install(agent hpagent hpagent-shim hpstacks hpcontroller-step hpctl_auto_resume)
if(TARGET hptrain)
  list(APPEND hp_components trainer)
  hp_install(trainer hptrain)
  # hptrain opens it beside itself (decision 0203).
  install(TARGETS hptrain_engine LIBRARY DESTINATION ${hp_home}/bin COMPONENT trainer)
endif()

hp_command(cli hpctl)
hp_command(controller hpcontroller)
hp_command(agent hpagent)

hp_manual(cli hpctl 1 all)
hp_manual(controller hpcontroller 8)
hp_manual(agent hpagent 8 check "check network")
hp_manual(agent hpstacks 8)
hp_manual(agent hpcontroller-step 8)
hp_manual(trainer hptrain 1)

hp_completion(cli hpctl)
hp_completion(controller hpcontroller)
hp_completion(agent hpagent check "check network")
hp_completion(trainer hptrain)

install(FILES deploy/environment.json deploy/instances.json
        DESTINATION ${hp_home}/share/hpctl COMPONENT agent)
install(FILES deploy/systemd/hpctl-tmpfiles.conf
        DESTINATION usr/lib/tmpfiles.d RENAME hpctl.conf COMPONENT agent)
install(PROGRAMS scripts/install.sh deploy/hyperpod/install_hpctl.sh
        DESTINATION ${hp_home}/share/hpctl COMPONENT cli)
install(FILES deploy/systemd/hpcontroller.service
        DESTINATION usr/lib/systemd/system COMPONENT controller)
install(FILES deploy/systemd/hpcontroller.env DESTINATION etc/hpctl COMPONENT controller)
install(DIRECTORY deploy/prometheus DESTINATION ${hp_home}/share/hpctl COMPONENT controller
        USE_SOURCE_PERMISSIONS PATTERN "*-test.yml" EXCLUDE)
file(GLOB documents CONFIGURE_DEPENDS docs/*.md)
install(FILES ${documents} DESTINATION usr/share/doc/hpctl COMPONENT cli)
install(DIRECTORY examples DESTINATION usr/share/doc/hpctl COMPONENT cli USE_SOURCE_PERMISSIONS)

set(CPACK_PACKAGE_NAME hpctl)
set(CPACK_PACKAGE_CONTACT "the maintainers of hpctl <hpctl@localhost>")
set(CPACK_PACKAGE_VENDOR hpctl)
set(CPACK_PACKAGING_INSTALL_PREFIX /)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL ${hp_components})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# Parts of one release speak to each other over memory and descriptors; those of two need not.
set(hp_same "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(debian ${CMAKE_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_CLI_PACKAGE_NAME hpctl)
set(CPACK_COMPONENT_CLI_DESCRIPTION "keeps large training jobs alive: command line
Starts training jobs on Slurm or on this machine, shows and steers them.")
set(CPACK_DEBIAN_CLI_PACKAGE_RECOMMENDS "hpctl-agent ${hp_same}, hpctl-trainer ${hp_same}")
set(CPACK_DEBIAN_CLI_PACKAGE_CONTROL_EXTRA "${debian}/preinst;${debian}/cli/postrm")
set(CPACK_DEBIAN_CONTROLLER_PACKAGE_NAME hpctl-controller)
set(CPACK_COMPONENT_CONTROLLER_DESCRIPTION "keeps large training jobs alive: controller
Decides what runs and what follows a fault: for one job, for all local jobs
of a user, or as a service of a cluster's head node.")
set(CPACK_DEBIAN_CONTROLLER_PACKAGE_DEPENDS "hpctl ${hp_same}")
set(CPACK_DEBIAN_CONTROLLER_PACKAGE_CONTROL_EXTRA
    "${debian}/preinst;${debian}/controller/conffiles;${debian}/controller/postinst"
    "${debian}/controller/prerm;${debian}/controller/postrm")
set(CPACK_DEBIAN_AGENT_PACKAGE_NAME hpctl-agent)
set(CPACK_COMPONENT_AGENT_DESCRIPTION "keeps large training jobs alive: agent of a node
Supervises the workers of a job on one node, and has the plugin of Slurm
behind srun --auto-resume=1.")
set(CPACK_DEBIAN_AGENT_PACKAGE_DEPENDS "hpctl-controller ${hp_same}")
set(CPACK_DEBIAN_AGENT_PACKAGE_CONTROL_EXTRA "${debian}/preinst;${debian}/agent/prerm")
set(CPACK_DEBIAN_TRAINER_PACKAGE_NAME hpctl-trainer)
set(CPACK_COMPONENT_TRAINER_DESCRIPTION "keeps large training jobs alive: built-in trainer
Trains Llama, Qwen, Mistral and GPT models with FSDP in LibTorch, without Python.")
set(CPACK_DEBIAN_TRAINER_PACKAGE_DEPENDS "hpctl-agent ${hp_same}")
set(CPACK_DEBIAN_TRAINER_PACKAGE_CONTROL_EXTRA ${debian}/preinst)
foreach(component ${hp_components})
  string(TOUPPER ${component} upper)
  install(FILES LICENSE DESTINATION usr/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}
          RENAME copyright COMPONENT ${component})
endforeach()
# What the status page has of others.
install(FILES third_party/uplot/LICENSE DESTINATION usr/share/doc/hpctl-controller
        RENAME copyright.uplot COMPONENT controller)
add_dependencies(tests programs manual completion)
add_dependencies(landing_tests programs manual completion)
include(CPack)
