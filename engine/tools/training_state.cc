#include "engine/tools/training_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/tensors/safetensors.h"

namespace triptych::tools {
namespace {

constexpr const char* kRun = "run";      // lines of NAME VALUE
constexpr const char* kSteps = "steps";  // steps done
constexpr const char* kCurve = "curve";  // [measurements, 3]: steps, losses; NaN for none
constexpr int64_t kCurveColumns = 3;
constexpr const char* kBest = ".best";
constexpr uint64_t kMaxRunBytes = uint64_t{1} << 20;

std::string ToText(const RunKey& key) {
  std::string text;
  for (const auto& [name, value] : key) text += name + " " + value + "\n";
  return text;
}

// The first difference of the key from the stored text: "--seed is 1, and was 2".
std::string Difference(const RunKey& key, const std::string& stored) {
  std::istringstream lines(stored);
  for (const auto& [name, value] : key) {
    std::string line;
    std::getline(lines, line);
    if (line == name + " " + value) continue;
    const std::string was =
        line.starts_with(name + " ") ? line.substr(name.size() + 1) : std::string("another");
    return name + " is " + Printable(value) + ", and was " + Printable(was);
  }
  return "it has more options than this version knows";
}

std::vector<std::pair<std::string, at::Tensor>> TensorsOf(const Parameter& p) {
  return {{p.name, p.value}, {p.name + ".m", p.first_moment}, {p.name + ".v", p.second_moment}};
}

}  // namespace

void SaveTrainingState(const std::filesystem::path& file, const RunKey& key,
                       const TrainingState& state) {
  std::vector<checkpoint::SafetensorsTensor> tensors;
  const auto add = [&](const std::string& name, const std::string& dtype,
                       std::vector<int64_t> shape, const void* data, size_t bytes) {
    tensors.push_back(
        {name, dtype, std::move(shape), {static_cast<const std::byte*>(data), bytes}});
  };
  const std::string run = ToText(key);
  add(kRun, "U8", {static_cast<int64_t>(run.size())}, run.data(), run.size());
  add(kSteps, "I64", {1}, &state.steps, sizeof(state.steps));
  std::vector<double> curve;
  for (const Measurement& point : state.curve) {
    curve.push_back(static_cast<double>(point.steps));
    curve.push_back(point.training_loss);
    curve.push_back(point.held_out_loss.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  add(kCurve, "F64", {static_cast<int64_t>(state.curve.size()), kCurveColumns}, curve.data(),
      curve.size() * sizeof(double));
  for (const Parameter& p : state.parameters) {
    for (const auto& [name, tensor] : TensorsOf(p)) {
      add(name, "F32", tensor.sizes().vec(), tensor.data_ptr(), tensor.nbytes());
    }
  }
  for (const auto& [name, tensor] : state.best) {
    add(name + kBest, "F32", tensor.sizes().vec(), tensor.data_ptr(), tensor.nbytes());
  }
  checkpoint::WriteSafetensors(file, tensors);
}

void LoadTrainingState(const std::filesystem::path& path, const RunKey& key, int64_t run_steps,
                       TrainingState& state) {
  const checkpoint::SafetensorsFile file(path);
  const auto refuse = [&](const std::string& why) {
    throw LoadError(file.name() + ": not the state of a run with these options: " + why +
                    "; delete it to start again");
  };
  const auto bytes_of = [&](const std::string& name, uint64_t most) {
    const checkpoint::StoredTensor* const stored = file.Find(name);
    if (stored == nullptr || stored->bytes > most) refuse("tensor " + name + " is missing");
    return stored->bytes;
  };
  const auto read = [&](const std::string& name, void* to, uint64_t bytes) {
    if (bytes_of(name, bytes) != bytes) refuse("tensor " + name + " has another size");
    file.Read(name, {static_cast<std::byte*>(to), bytes});
  };
  std::string run(bytes_of(kRun, kMaxRunBytes), '\0');
  read(kRun, run.data(), run.size());
  if (run != ToText(key)) refuse(Difference(key, run));
  read(kSteps, &state.steps, sizeof(state.steps));
  std::vector<double> curve(bytes_of(kCurve, run_steps * kCurveColumns * sizeof(double)) /
                            sizeof(double));
  read(kCurve, curve.data(), curve.size() * sizeof(double));
  state.curve.clear();
  double last = 0;
  for (size_t i = 0; i + kCurveColumns <= curve.size(); i += kCurveColumns) {
    if (!(curve[i] > last && curve[i] < static_cast<double>(run_steps))) {
      refuse("its loss curve is invalid");
    }
    last = curve[i];
    Measurement point{static_cast<int64_t>(last), curve[i + 1], {}};
    if (!std::isnan(curve[i + 2])) point.held_out_loss = curve[i + 2];
    state.curve.push_back(point);
  }
  if (state.curve.empty() || state.curve.back().steps != state.steps) {
    refuse("its number of steps differs from its loss curve");
  }
  const bool has_best = std::any_of(state.curve.begin(), state.curve.end(),
                                    [](const Measurement& p) { return p.held_out_loss; });
  const at::NoGradGuard no_grad;
  for (const Parameter& p : state.parameters) {
    for (const auto& [name, tensor] : TensorsOf(p)) read(name, tensor.data_ptr(), tensor.nbytes());
    if (!has_best) continue;
    const at::Tensor best = at::empty_like(p.value);
    read(p.name + kBest, best.data_ptr(), best.nbytes());
    state.best.insert_or_assign(p.name, best);
  }
}

}  // namespace triptych::tools
