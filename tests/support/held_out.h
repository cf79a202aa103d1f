// Held-out texts for tests, and a model's held-out loss.
#ifndef TRIPTYCH_TESTS_SUPPORT_HELD_OUT_H_
#define TRIPTYCH_TESTS_SUPPORT_HELD_OUT_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/tools/corpus.h"
#include "engine/tools/evaluate.h"
#include "tests/support/tokenizer.h"

namespace triptych {

// A corpus for models without a record of their training text.
inline tools::Corpus TestCorpus(const std::filesystem::path& text, double held_out) {
  ModelConfig config;
  config.vocab_size = TestTokenizer()->vocab_size();
  return tools::Corpus(text, *TestTokenizer(), held_out, config, "the test's model");
}

// The loss that `triptych-model evaluate` prints, rounded to four decimals.
inline double PrintedLoss(const tools::EvaluateOptions& options) {
  testing::internal::CaptureStdout();
  tools::Evaluate(options);
  const std::string printed = testing::internal::GetCapturedStdout();
  return std::stod(printed.substr(printed.find(": ") + 2));
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_HELD_OUT_H_
