// Child process with captured output.
#ifndef TRIPTYCH_TESTS_SUPPORT_PROCESS_H_
#define TRIPTYCH_TESTS_SUPPORT_PROCESS_H_

#include <sys/types.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace triptych {

// Reads a file descriptor to its end, in a separate thread.
class OutputReader {
 public:
  explicit OutputReader(int fd);  // Takes the descriptor.
  ~OutputReader();

  // Waits for `text`, at most two minutes; returns false if the output ends first.
  bool WaitFor(const std::string& text);
  // Waits for the end; returns all output.
  std::string ReadToEnd();

 private:
  void Read();

  const int fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;    // Guarded by mutex_.
  bool ended_ = false;  // Guarded by mutex_.
  std::thread reader_;
};

// A child process with captured output.
class Process {
 public:
  struct Options {
    std::string input = {};                     // Standard input.
    std::vector<std::string> environment = {};  // "NAME=VALUE", in addition to this process's own.
    bool terminal = false;                      // Makes standard input and output a terminal.
    int columns = 0;                            // Terminal width; 0 if it has no size.
  };
  struct Result {
    int exit_code;  // 128 and the signal's number, if a signal ended it.
    std::string out;
    std::string err;
  };

  // argv[0] is the program's path.
  Process(const std::vector<std::string>& argv, const Options& options);
  ~Process();

  bool WaitForOutput(const std::string& text) { return out_->WaitFor(text); }
  void Signal(int signal);
  Result Wait();

 private:
  pid_t pid_ = -1;
  std::unique_ptr<OutputReader> out_;
  std::unique_ptr<OutputReader> err_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_PROCESS_H_
