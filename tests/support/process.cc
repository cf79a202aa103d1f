#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>

namespace triptych {
namespace {

constexpr std::chrono::minutes kLongestWait{2};

int Checked(int result, const char* what) {
  if (result < 0) throw std::runtime_error(what);
  return result;
}

// {reading end, writing end}
std::array<int, 2> MakePipe() {
  std::array<int, 2> ends;
  Checked(pipe2(ends.data(), O_CLOEXEC), "pipe2");
  return ends;
}

// {controlling end, terminal's end}
std::array<int, 2> MakeTerminal(int columns) {
  const int controller = Checked(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), "posix_openpt");
  Checked(grantpt(controller), "grantpt");
  Checked(unlockpt(controller), "unlockpt");
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  Checked(ioctl(controller, TIOCSWINSZ, &size), "TIOCSWINSZ");
  std::array<char, 128> name;
  if (ptsname_r(controller, name.data(), name.size()) != 0) throw std::runtime_error("ptsname_r");
  return {controller, Checked(open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC), name.data())};
}

// An unnamed file that contains `text`, positioned at its start.
int MakeInput(const std::string& text) {
  const int fd = Checked(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), "open");
  for (size_t written = 0; written < text.size();) {
    written += Checked(write(fd, text.data() + written, text.size() - written), "write");
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

OutputReader::OutputReader(int fd) : fd_(fd), reader_([this] { Read(); }) {}

OutputReader::~OutputReader() {
  reader_.join();
  close(fd_);
}

void OutputReader::Read() {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = read(fd_, buffer.data(), buffer.size());
    const std::lock_guard lock(mutex_);
    if (count > 0) text_.append(buffer.data(), count);
    ended_ = count <= 0;  // Reading a closed terminal fails.
    changed_.notify_all();
    if (ended_) return;
  }
}

bool OutputReader::WaitFor(const std::string& text) {
  std::unique_lock lock(mutex_);
  const auto has_come = [&] { return text_.find(text) != std::string::npos; };
  changed_.wait_for(lock, kLongestWait, [&] { return ended_ || has_come(); });
  return has_come();
}

std::string OutputReader::ReadToEnd() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_; });
  return text_;
}

Process::Process(const std::vector<std::string>& argv, const Options& options) {
  const auto [err_read, err_write] = MakePipe();
  const auto [out_read, out_write] = options.terminal ? MakeTerminal(options.columns) : MakePipe();
  const int input = options.terminal ? dup(out_write) : MakeInput(options.input);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out_write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err_write, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &signals);

  std::vector<std::string> arguments = argv;
  std::vector<std::string> environment = options.environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string(*variable).starts_with("TRIPTYCH_")) environment.push_back(*variable);
  }
  const int error = posix_spawn(&pid_, argv[0].c_str(), &files, &attributes,
                                Pointers(arguments).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  close(input);
  close(out_write);
  close(err_write);
  out_ = std::make_unique<OutputReader>(out_read);
  err_ = std::make_unique<OutputReader>(err_read);
  if (error != 0) throw std::runtime_error("cannot start " + argv[0]);
}

Process::~Process() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Process::Signal(int signal) { kill(pid_, signal); }

Process::Result Process::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  const int exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return {exit_code, out_->ReadToEnd(), err_->ReadToEnd()};
}

}  // namespace triptych
