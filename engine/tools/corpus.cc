#include "engine/tools/corpus.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/tools/digest.h"

namespace triptych::tools {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 32;

}  // namespace

void CheckTokens(std::span<const int32_t> tokens, const std::filesystem::path& file,
                 const ModelConfig& config, const std::string& model) {
  const auto most = std::max_element(tokens.begin(), tokens.end());
  if (most == tokens.end() || *most < config.vocab_size) return;
  throw LoadError(file.string() + ": holds token " + std::to_string(*most) +
                  " of the tokenizer; allowed: tokens below vocab_size = " +
                  std::to_string(config.vocab_size) + " of " + model);
}

const TrainingText* FindText(const std::vector<TrainingText>& texts, const std::string& sha256) {
  const auto found = std::find_if(texts.begin(), texts.end(),
                                  [&](const TrainingText& text) { return text.sha256 == sha256; });
  return found == texts.end() ? nullptr : &*found;
}

void AddTrainingText(std::vector<TrainingText>& texts, const TrainingText& text) {
  for (TrainingText& known : texts) {
    if (known.sha256 != text.sha256) continue;
    known.held_out = std::min(known.held_out, text.held_out);
    return;
  }
  texts.push_back(text);
}

Corpus::Corpus(const std::filesystem::path& file, const Tokenizer& tokenizer,
               std::optional<double> held_out, const ModelConfig& config, const std::string& model)
    : file_(file), begin_token_(tokenizer.begin_token().value_or(tokenizer.end_token())) {
  const std::string text = ReadText(file, kMaxTextBytes);
  bytes_ = static_cast<int64_t>(text.size());
  identity_.sha256 = Sha256(text);
  const TrainingText* const known = FindText(config.training_texts, identity_.sha256);
  identity_.held_out = held_out.value_or(known != nullptr ? known->held_out : kDefaultHeldOut);
  if (!(identity_.held_out >= 0 && identity_.held_out < 1)) {
    throw std::runtime_error("--held-out " + std::to_string(identity_.held_out) +
                             " is out of range; allowed: 0 to less than 1");
  }
  const std::vector<int32_t> ids = tokenizer.Encode(text);
  CheckTokens(ids, file, config, model);
  const at::Tensor tokens =
      at::tensor(at::IntArrayRef(std::vector<int64_t>(ids.begin(), ids.end())), at::kLong);
  const auto held_out_tokens =
      static_cast<int64_t>(identity_.held_out * static_cast<double>(ids.size()));
  train_ = tokens.narrow(0, 0, tokens.size(0) - held_out_tokens);
  held_out_ = tokens.narrow(0, train_.size(0), held_out_tokens);
  RequireUnseen(config, model);
}

void Corpus::RequireUnseen(const ModelConfig& config, const std::string& model) const {
  const TrainingText* const seen = FindText(config.training_texts, identity_.sha256);
  if (seen == nullptr || identity_.held_out <= seen->held_out) return;
  std::ostringstream message;
  message << "--held-out " << identity_.held_out << ": " << model << " was trained on ";
  if (seen->held_out > 0) {
    message << "some of that part of " << file_.string() << "; allowed: 0 to " << seen->held_out;
  } else {
    message << "all of " << file_.string() << "; allowed: another text";
  }
  throw LoadError(message.str());
}

Window Corpus::MakeWindow(const at::Tensor& targets) const {
  const at::Tensor begin = at::full({targets.size(0), 1}, begin_token_, at::kLong);
  return {at::cat({begin, targets.narrow(1, 0, targets.size(1) - 1)}, 1), targets};
}

void Corpus::RequireHeldOut() const {
  if (held_out_tokens() > 0) return;
  throw std::runtime_error(file_.string() + ": none of its " + std::to_string(train_tokens()) +
                           " tokens are held out");
}

void Corpus::RequireTraining(int64_t length) const {
  if (train_tokens() >= length) return;
  throw std::runtime_error(file_.string() + ": " + std::to_string(train_tokens()) +
                           " tokens that are not held out are fewer than one window of " +
                           std::to_string(length));
}

Window Corpus::Sample(int64_t batch, int64_t length, std::mt19937_64& generator) const {
  RequireTraining(length);
  std::vector<at::Tensor> targets;
  const uint64_t places = train_.size(0) - length + 1;
  for (int64_t i = 0; i < batch; ++i) {
    targets.push_back(train_.narrow(0, static_cast<int64_t>(generator() % places), length));
  }
  return MakeWindow(at::stack(targets));
}

std::vector<Window> Corpus::HeldOutWindows(int64_t batch, int64_t length) const {
  std::vector<Window> windows;
  const int64_t whole = held_out_.size(0) / length;
  for (int64_t first = 0; first < whole; first += batch) {
    const int64_t count = std::min(batch, whole - first);
    windows.push_back(
        MakeWindow(held_out_.narrow(0, first * length, count * length).view({count, length})));
  }
  if (const int64_t rest = held_out_.size(0) - whole * length; rest > 0) {
    windows.push_back(MakeWindow(held_out_.narrow(0, whole * length, rest).unsqueeze(0)));
  }
  return windows;
}

}  // namespace triptych::tools
