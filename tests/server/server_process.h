// Server process for tests.
#ifndef TRIPTYCH_TESTS_SERVER_SERVER_PROCESS_H_
#define TRIPTYCH_TESTS_SERVER_SERVER_PROCESS_H_

#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/client.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "triptych/v1/inference.grpc.pb.h"

namespace triptych::server {

// A triptych-server process, whose log can be read line by line.
class ServerProcess {
 public:
  // Waits until the server listens or has ended. `environment`: as of Process.
  explicit ServerProcess(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment = {}) {
    const std::string fifo = directory_.path() / "log";
    if (mkfifo(fifo.c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
    std::vector<std::string> argv = {
        "/bin/sh",  "-c",         "exec \"$@\" >\"$0\"", fifo, TRIPTYCH_SERVER_PROGRAM,
        "--listen", "127.0.0.1:0"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    process_ = std::make_unique<Process>(argv, Process::Options{.environment = environment});
    log_.open(fifo);  // the shell waits for it
    const std::string line = ReadUntil("listening on ");
    std::smatch match;
    if (std::regex_search(line, match, std::regex("listening on ([0-9.:]+)"))) address_ = match[1];
  }

  // Reads the log up to a line that contains `text`, and returns that line; empty at the log's end.
  std::string ReadUntil(const std::string& text) {
    for (std::string line; std::getline(log_, line);) {
      lines_.push_back(line);
      if (line.find(text) != line.npos) return line;
    }
    return "";
  }

  // Closes the reading end of the log.
  void CloseLog() { log_.close(); }

  void Signal(int signal) { process_->Signal(signal); }

  // Waits for the server's end; returns its exit status.
  int Wait() {
    ReadUntil("\n");
    Process::Result result = process_->Wait();
    err_ = result.err;
    return result.exit_code;
  }

  const std::string& address() const { return address_; }
  // The lines of the log read so far.
  const std::vector<std::string>& lines() const { return lines_; }
  const std::string& err() const { return err_; }  // after Wait

  std::unique_ptr<v1::InferenceService::Stub> Inference() const {
    return v1::InferenceService::NewStub(client::Connect(address_));
  }

 private:
  TempDir directory_;
  std::unique_ptr<Process> process_;
  std::ifstream log_;
  std::vector<std::string> lines_;
  std::string address_;
  std::string err_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_SERVER_PROCESS_H_
