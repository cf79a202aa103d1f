// Tests of damaged model files: a value changed or removed, or bytes overwritten. Each must be
// read, or rejected with a one-line error, in memory bounded by kMostBytes and the file's size.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config/generation_config.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tensors/block_formats.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "engine/checkpoint/tokenizer/sentencepiece_model.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"
#include "tests/support/gguf_file.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tokenizer_files.h"

namespace {

// Bytes that this thread has allocated with new, and their maximum since it was last reset.
thread_local int64_t held = 0;
thread_local int64_t most_held = 0;

}  // namespace

// The other forms of new and delete call these, except one that AddressSanitizer replaces. Not
// inlined: otherwise GCC warns that free does not match new.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  held += static_cast<int64_t>(malloc_usable_size(memory));
  most_held = std::max(most_held, held);
  return memory;
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* const memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  held -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace triptych::file_mutations_test {
namespace {

using Target = std::function<void(std::string_view)>;

// Limit of a reader's live memory: a small file can name the widest possible model, whose rotary
// factors are computed, written and read again. Files themselves are kept as parsed values.
constexpr int64_t kMostBytes = int64_t{128} << 20;
constexpr int64_t kMostBytesPerByte = 100;

void Try(const Target& target, const std::string& bytes) {
  const int64_t before = held;
  most_held = held;
  EXPECT_NO_THROW(target(bytes)) << Quoted(bytes, 4000);
  EXPECT_LE(most_held - before, kMostBytes + kMostBytesPerByte * std::ssize(bytes))
      << Quoted(bytes, 4000);
}

// The kept inputs of a target.
std::vector<std::string> Kept(const std::string& target) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(TRIPTYCH_FUZZ_DIR) / "corpus" / target)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> files;
  for (const std::filesystem::path& path : paths) files.push_back(ReadFile(path));
  EXPECT_FALSE(files.empty()) << target;
  return files;
}

// ---- One value changed or removed --------------------------------------------------------------

const std::vector<Json>& OtherValues() {
  static const std::vector<Json> values = {nullptr,
                                           true,
                                           0,
                                           1,
                                           -1,
                                           7,
                                           1 << 20,
                                           std::numeric_limits<int32_t>::max(),
                                           int64_t{1} << 40,
                                           std::numeric_limits<int64_t>::min(),
                                           std::numeric_limits<uint64_t>::max(),
                                           0.5,
                                           1e-300,
                                           -1e300,
                                           1e300,
                                           "",
                                           "x",
                                           std::string(5000, '\x1b') + "\u202e\n",
                                           Json::array(),
                                           Json::array({1, "x"}),
                                           Json::object(),
                                           Json{{"type", "x"}}};
  return values;
}

// Adds pointers to the values inside `value`; for long lists, only to the first few.
void AddPointers(const Json& value, const Json::json_pointer& at,
                 std::vector<Json::json_pointer>& pointers) {
  constexpr size_t kMostMembers = 40, kMostElements = 4;
  const auto add = [&](const Json& inside, const Json::json_pointer& pointer) {
    pointers.push_back(pointer);
    AddPointers(inside, pointer, pointers);
  };
  if (value.is_object()) {
    size_t members = 0;
    for (const auto& [name, inside] : value.items()) {
      if (members++ < kMostMembers) add(inside, at / name);
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < std::min(value.size(), kMostElements); ++i) add(value[i], at / i);
  }
}

template <typename Check>
void ForEachChange(const Json& document, const Check& check) {
  std::vector<Json::json_pointer> pointers;
  AddPointers(document, Json::json_pointer(), pointers);
  for (const Json::json_pointer& pointer : pointers) {
    for (const Json& other : OtherValues()) {
      Json changed = document;
      changed[pointer] = other;
      check(changed);
    }
    Json without = document;
    Json& holder = without[pointer.parent_pointer()];
    if (holder.is_object()) {
      holder.erase(pointer.back());
    } else {
      holder.erase(std::stoul(pointer.back()));
    }
    check(without);
  }
}

// The parsed JSON; nothing if it is invalid.
std::optional<Json> Parsed(std::string_view text) {
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return std::nullopt;
  return document;
}

TEST(FileMutationsTest, ValuesOfConfigs) {
  for (const std::string& file : Kept("config")) {
    const std::optional<Json> config = Parsed(file);
    if (config) ForEachChange(*config, [](const Json& it) { Try(FuzzConfig, it.dump()); });
  }
}

TEST(FileMutationsTest, ValuesOfIndices) {
  for (const std::string& file : Kept("safetensors_index")) {
    const std::optional<Json> index = Parsed(file);
    if (index) ForEachChange(*index, [](const Json& it) { Try(FuzzSafetensorsIndex, it.dump()); });
  }
}

TEST(FileMutationsTest, ValuesOfShardsHeaders) {
  for (const std::string& file : Kept("safetensors")) {
    uint64_t length = 0;
    if (file.size() < sizeof(length)) continue;
    std::memcpy(&length, file.data(), sizeof(length));
    if (length > file.size() - sizeof(length)) continue;
    const std::optional<Json> header = Parsed(std::string_view(file).substr(8, length));
    if (!header) continue;
    const std::string data = file.substr(8 + length);
    ForEachChange(*header, [&](const Json& it) {
      const std::string text = it.dump();
      Try(FuzzSafetensors, BytesOf(uint64_t{text.size()}) + text + data);
    });
  }
}

// Values of quantization_config, and of the header of the file behind it.
TEST(FileMutationsTest, ValuesOfQuantizedMatrices) {
  for (const std::string& file : Kept("quantized_matrices")) {
    const size_t end = file.find('\n');
    ASSERT_NE(end, file.npos);
    const std::optional<Json> config = Parsed(std::string_view(file).substr(0, end));
    uint64_t length = 0;
    ASSERT_GE(file.size(), end + 1 + sizeof(length));
    std::memcpy(&length, &file[end + 1], sizeof(length));
    const size_t begin = end + 1 + sizeof(length);
    const std::optional<Json> header = Parsed(std::string_view(file).substr(begin, length));
    ASSERT_TRUE(config && header) << Quoted(file);
    ForEachChange(
        *config, [&](const Json& it) { Try(FuzzQuantizedMatrices, it.dump() + file.substr(end)); });
    ForEachChange(*header, [&](const Json& it) {
      const std::string text = it.dump();
      Try(FuzzQuantizedMatrices, file.substr(0, end + 1) + BytesOf(uint64_t{text.size()}) + text +
                                     file.substr(begin + length));
    });
  }
}

TEST(FileMutationsTest, ValuesOfTokenizers) {
  for (const std::string& file : Kept("tokenizer_json")) {
    const size_t end = file.rfind('\n');
    const std::optional<Json> tokenizer = Parsed(std::string_view(file).substr(0, end));
    ASSERT_TRUE(tokenizer) << Quoted(file);
    ForEachChange(*tokenizer,
                  [&](const Json& it) { Try(FuzzTokenizerJson, it.dump() + file.substr(end)); });
  }
}

// A value as GGUF metadata: its type and bytes; nothing if GGUF has no type for it.
std::optional<std::pair<uint32_t, std::string>> ToGguf(const Json& value) {
  using Type = GgufBuilder::Type;
  if (value.is_boolean()) return std::pair(Type::kBool, std::string(1, value.get<bool>() ? 1 : 0));
  if (value.is_string())
    return std::pair(Type::kString, GgufBuilder::Text(value.get<std::string>()));
  if (value.is_number_float()) return std::pair(Type::kFloat64, BytesOf(value.get<double>()));
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > std::numeric_limits<uint32_t>::max())
      return std::pair(Type::kUint64, BytesOf(number));
    return std::pair(Type::kUint32, BytesOf(static_cast<uint32_t>(number)));
  }
  if (value.is_number_integer()) return std::pair(Type::kInt64, BytesOf(value.get<int64_t>()));
  return std::nullopt;
}

// A file with this metadata and the tensors of `like`; nothing if GGUF cannot represent it.
std::optional<std::string> GgufWith(const Json& metadata, const checkpoint::GgufFile& like) {
  GgufBuilder file;
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_array()) {
      const auto scalar = ToGguf(value);
      if (!scalar) return std::nullopt;
      file.Add(key, scalar->first, scalar->second);
      continue;
    }
    uint32_t type = GgufBuilder::kUint32;
    std::string bytes;
    for (size_t i = 0; i < value.size(); ++i) {
      const auto element = ToGguf(value[i]);
      if (!element || (i > 0 && element->first != type)) return std::nullopt;
      type = element->first;
      bytes += element->second;
    }
    file.AddList(key, type, value.size(), bytes);
  }
  for (const std::string& name : like.TensorNames()) {
    const checkpoint::StoredTensor& stored = *like.Find(name);
    const checkpoint::BlockFormat* const blocks = checkpoint::FindBlockFormat(stored.dtype);
    const uint32_t type = blocks != nullptr       ? blocks->type
                          : stored.dtype == "F32" ? 0
                          : stored.dtype == "F16" ? 1
                                                  : 30;
    std::string data(stored.bytes, '\0');
    like.Read(name, std::as_writable_bytes(std::span(data)));
    file.AddTensor(name, type, {stored.shape.rbegin(), stored.shape.rend()}, data);
  }
  return file.Bytes();
}

TEST(FileMutationsTest, ValuesOfGgufMetadata) {
  int files = 0;
  for (const std::string& bytes : Kept("gguf")) {
    const MemoryFile memory(bytes);
    std::unique_ptr<const checkpoint::GgufFile> file;
    try {
      file = std::make_unique<const checkpoint::GgufFile>(memory.path());
    } catch (const LoadError&) {
      continue;
    }
    ++files;
    ForEachChange(file->metadata(), [&](const Json& it) {
      if (const std::optional<std::string> changed = GgufWith(it, *file)) Try(FuzzGguf, *changed);
    });
  }
  EXPECT_GT(files, 5);
}

// ---- Damaged bytes -----------------------------------------------------------------------------

std::string Damaged(std::string bytes, std::mt19937& random) {
  constexpr uint64_t kEdges[] = {0,          1,          0x7f,       0x80,        0xff,
                                 0x7fffffff, 0x80000000, 0xffffffff, 1ULL << 40U, ~uint64_t{0}};
  for (uint32_t times = 1 + random() % 4; times > 0; --times) {
    if (bytes.empty()) bytes.push_back('\n');
    const size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
        break;
      case 1: {
        const uint64_t edge = kEdges[random() % std::size(kEdges)];
        const size_t width = std::min<size_t>(size_t{1} << random() % 4, bytes.size() - at);
        std::memcpy(&bytes[at], &edge, width);
        break;
      }
      case 2:
        bytes.erase(at, 1 + random() % 16);
        break;
      case 3:
        bytes.insert(at, bytes.substr(random() % bytes.size(), 1 + random() % 64));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

TEST(FileMutationsTest, BytesOfEveryKind) {
  const std::vector<std::pair<std::string, Target>> kinds = {
      {"config", FuzzConfig},
      {"gguf", FuzzGguf},
      {"gguf_shards", FuzzGgufShards},
      {"llama2c", FuzzLlama2c},
      {"quantized_matrices", FuzzQuantizedMatrices},
      {"safetensors", FuzzSafetensors},
      {"safetensors_index", FuzzSafetensorsIndex},
      {"sentencepiece", FuzzSentencePiece},
      {"tokenizer_json", FuzzTokenizerJson}};
  std::mt19937 random(17);
  for (const auto& [kind, target] : kinds) {
    for (const std::string& file : Kept(kind)) {
      for (int i = 0; i < 200; ++i) Try(target, Damaged(file, random));
    }
  }
}

TEST(FileMutationsTest, ValuesOfFilesNextToATokenizer) {
  const Json settings = {{"tokenizer_class", "LlamaTokenizer"},
                         {"bos_token", "</s>"},
                         {"add_bos_token", true},
                         {"eos_token", {{"content", "</s>"}, {"special", true}}},
                         {"chat_template", "{{ messages[0].content }}"}};
  const Json generation = {{"eos_token_id", {256, 257}},
                           {"do_sample", true},
                           {"temperature", 0.7},
                           {"top_k", 20},
                           {"top_p", 0.9},
                           {"min_p", 0.05},
                           {"repetition_penalty", 1.1},
                           {"max_length", 40},
                           {"max_new_tokens", 20}};
  const Json map = {{"eos_token", {{"content", "<x>"}}}, {"additional_special_tokens", {"<y>"}}};
  const Json added = {{"<x>", 3}, {"<y>", 4}, {"<z>", 6}};
  const checkpoint::ScoredVocabulary pieces{
      .pieces = {{"<unk>", 0, checkpoint::ScoredPiece::kUnknown},
                 {"</s>", 0, checkpoint::ScoredPiece::kControl},
                 {"a", -1}},
      .space = checkpoint::kMetaspace,
      .ends = {1}};
  for (const auto& [name, document] : {std::pair("tokenizer_config.json", settings),
                                       {"generation_config.json", generation},
                                       {"special_tokens_map.json", map},
                                       {"added_tokens.json", added}}) {
    const TempDir directory;
    if (document == map || document == added) {
      WriteFile(directory.path() / "tokenizer.model", checkpoint::WriteSentencePieceModel(pieces));
    } else {
      WriteFile(directory.path() / "tokenizer.json", ByteLevelJson().dump());
    }
    const std::filesystem::path file = directory.path() / name;
    const auto read = [&](std::string_view text) {
      WriteFile(file, std::string(text));
      try {
        checkpoint::LoadTokenizer(directory.path());
        checkpoint::ReadGenerationConfig(directory.path());
        checkpoint::OpenedCheckpoint checkpoint;
        checkpoint.path = directory.path();
        checkpoint::ReadChatTemplate(checkpoint);
      } catch (const LoadError& e) {
        PromiseClearLine(e.what(), 1000);
      }
    };
    ForEachChange(document, [&](const Json& it) { Try(read, it.dump()); });
    std::mt19937 random(17);
    for (int i = 0; i < 200; ++i) Try(read, Damaged(document.dump(), random));
  }
}

// A reader that trusted a wrong length would allocate that much: the meter must detect it.
TEST(FileMutationsTest, TheMeterCounts) {
  const int64_t before = held;
  most_held = held;
  {
    const std::string text(1 << 20, 'x');
    EXPECT_GE(held - before, 1 << 20);
  }
  EXPECT_LT(held - before, 1 << 20);
  EXPECT_GE(most_held - before, 1 << 20);
}

}  // namespace
}  // namespace triptych::file_mutations_test
