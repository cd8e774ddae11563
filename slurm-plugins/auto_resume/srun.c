// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "slurm-plugins/auto_resume/srun.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slurm-plugins/auto_resume/clash.h"
#include "slurm-plugins/auto_resume/options.h"

enum { TOKEN_BYTES = 32, LISTENER_FD = 3, LIFELINE_FD = 4, FIRST_FREE_FD = 5, PATIENCE_MS = 5000 };

// srun's end of the lifeline: kept open, and closed by nobody but the end of srun.
static int lifeline = -1;

void hp_srun_options_read(void) {
  unsetenv("SLURM_HPCTL_STEP_PORT");
  unsetenv("SLURM_HPCTL_STEP_TOKEN");
  hp_explain_clash();
}

// Any port on every interface, as srun's own listeners; -1 with errno.
static int make_listener(uint16_t* port) {
  const int off = 0;
  struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
  struct sockaddr_in any4 = {.sin_family = AF_INET};
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, (struct sockaddr*)&any6, sizeof(any6)) != 0) {
      close(fd);
      fd = -1;
    }
  }
  if (fd < 0) {
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr*)&any4, sizeof(any4)) != 0) goto fail;
  }
  socklen_t size = sizeof(any6);
  if (listen(fd, SOMAXCONN) != 0) goto fail;
  if (getsockname(fd, (struct sockaddr*)&any6, &size) != 0) goto fail;
  *port = ntohs(any6.sin6_port);  // at the same place in both kinds of address
  return fd;
fail:
  close(fd);
  return -1;
}

static int make_token(char* text, size_t size) {
  unsigned char bytes[TOKEN_BYTES];
  if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) return -1;
  for (size_t i = 0; i < sizeof(bytes) && 2 * i + 2 < size; ++i) {
    snprintf(text + 2 * i, 3, "%02x", bytes[i]);
  }
  return 0;
}

struct launch {
  char path[PATH_MAX];
  char run_id[64];
  int listener;
  int lifeline;
  int failure;  // errno of exec is written here; closed by exec
};

// Between fork and exec of a process with threads: async-signal-safe calls only.
static void exec_controller(const struct launch* launch) {
  static char listener_text[] = "3";
  static char lifeline_text[] = "4";
  static char no_input[] = "no-input";
  struct stat input;  // that of srun; makedev(1, 3) is /dev/null
  const int has_input = fstat(STDIN_FILENO, &input) == 0 &&
                        !(S_ISCHR(input.st_mode) && input.st_rdev == makedev(1, 3));
  char* const argv[] = {
      (char*)launch->path,         listener_text, lifeline_text, (char*)launch->run_id,
      has_input ? NULL : no_input, NULL};
  // Out of the way of the numbers they shall have.
  const int listener_copy = fcntl(launch->listener, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
  const int lifeline_copy = fcntl(launch->lifeline, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
  const int failure = fcntl(launch->failure, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
  const int null = open("/dev/null", O_RDWR);
  sigset_t none;
  sigemptyset(&none);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0 &&
      dup2(listener_copy, LISTENER_FD) >= 0 && dup2(lifeline_copy, LIFELINE_FD) >= 0) {
    // Foreign descriptors end here; ours above have close-on-exec.
#ifdef SYS_close_range
    if (failure > FIRST_FREE_FD) syscall(SYS_close_range, FIRST_FREE_FD, failure - 1, 0);
    syscall(SYS_close_range, failure + 1, ~0U, 0);
#endif
    execv(launch->path, argv);
  }
  const int error = errno;
  const ssize_t ignored = write(failure, &error, sizeof(error));
  (void)ignored;
  _exit(127);
}

// A grandchild in a session of its own: no terminal signal reaches it, srun has no child to reap.
// 0, or errno.
static int start_controller(struct launch* launch) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  launch->failure = ends[1];
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    const pid_t grandchild = fork();
    if (grandchild == 0) exec_controller(launch);
    _exit(grandchild > 0 ? 0 : 1);
  }
  const int fork_error = errno;
  close(ends[1]);
  int status = 0;
  int error = child < 0 ? fork_error : 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (error == 0 && status != 0) error = EAGAIN;
  if (error == 0) {
    struct pollfd wait = {.fd = ends[0], .events = POLLIN};
    if (poll(&wait, 1, PATIENCE_MS) <= 0) {
      error = ETIMEDOUT;
    } else if (read(ends[0], &error, sizeof(error)) != (ssize_t)sizeof(error)) {
      error = 0;  // closed by exec
    }
  }
  close(ends[0]);
  return error;
}

static void name_run(spank_t spank, char* text, size_t size) {
  uint32_t job = 0;
  uint32_t step = 0;
  spank_get_item(spank, S_JOB_ID, &job);
  spank_get_item(spank, S_JOB_STEPID, &step);
  snprintf(text, size, "%u.%u", job, step);
}

void hp_srun_start_controller(spank_t spank) {
  if (!hp_resume_wanted()) return;
  if (hp_command_line_has("--multi-prog")) {
    hp_say("--multi-prog steps cannot be restarted; running without auto-resume");
    return;
  }
  if (hp_command_line_has("--pty")) {  // a shell that a person leaves with a status is no fault
    hp_say("--pty steps are not restarted; running without auto-resume");
    return;
  }
  if (hp_command_line_has_components()) {
    hp_say(
        "a heterogeneous step (components with \" : \" between them, or several groups) cannot be "
        "restarted; running without auto-resume");
    return;
  }
  struct launch launch = {.listener = -1};
  char token[2 * TOKEN_BYTES + 1] = "";
  char port_text[8];
  uint16_t port = 0;
  int ends[2] = {-1, -1};
  int error = 0;
  name_run(spank, launch.run_id, sizeof(launch.run_id));
  if (!hp_program_path("hpcontroller-step", launch.path, sizeof(launch.path))) error = ENAMETOOLONG;
  if (error == 0 && make_token(token, sizeof(token)) != 0) error = errno;
  if (error == 0 && pipe2(ends, O_CLOEXEC) != 0) error = errno;
  if (error == 0 && (launch.listener = make_listener(&port)) < 0) error = errno;
  if (error == 0) {
    launch.lifeline = ends[0];
    setenv("SLURM_HPCTL_STEP_TOKEN", token, 1);
    error = start_controller(&launch);
  }
  if (launch.listener >= 0) close(launch.listener);
  if (ends[0] >= 0) close(ends[0]);
  if (error != 0) {
    if (ends[1] >= 0) close(ends[1]);
    unsetenv("SLURM_HPCTL_STEP_TOKEN");
    hp_say("cannot start %s: %s; running without auto-resume", launch.path, strerror(error));
    return;
  }
  lifeline = ends[1];
  snprintf(port_text, sizeof(port_text), "%u", port);
  setenv("SLURM_HPCTL_STEP_PORT", port_text, 1);
}
