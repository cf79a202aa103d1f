#include "engine/checkpoint/load_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

using ::testing::ElementsAre;

TEST(LoadTokenizerTest, WithoutFilesOfOneEveryByteIsAToken) {
  const TempDir directory;
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(directory.path());
  EXPECT_THAT(tokenizer->Encode("a\xff"), ElementsAre(97, 255));
  EXPECT_EQ(tokenizer->vocab_size(), 258);
}

TEST(LoadTokenizerTest, AModelHasEveryTokenOfItsTokenizer) {
  const TempDir directory;
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(directory.path());
  ModelConfig config;
  config.vocab_size = 258;
  CheckVocabulary(*tokenizer, config, "model");
  config.vocab_size = 257;
  try {
    CheckVocabulary(*tokenizer, config, "model");
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_STREQ(e.what(), "model: vocab_size is 257; its tokenizer needs at least 258");
  }
}

}  // namespace
}  // namespace triptych
