#include "server/core/tokenizer_bundles.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "server/core/sha256.h"

namespace triptych::server {
namespace {

namespace fs = std::filesystem;

bool IsTokenizerFile(const fs::path& path) {
  static constexpr std::string_view kNames[] = {
      "chat_template.json",      "config.json",    "generation_config.json", "merges.txt",
      "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json",  "vocab.json"};
  static constexpr std::string_view kEndings[] = {".jinja", ".model", ".tiktoken"};
  const std::string name = path.filename().string(), ending = path.extension().string();
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings);
}

// The CRC-32 of ISO 3309, which zip archives have.
uint32_t Crc32(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < made.size(); ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320 : 0);
      made[i] = value;
    }
    return made;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

// Writes a zip archive of stored files (PKWARE's APPNOTE.TXT 6.3). REQUIRES: it is smaller than
// 4 GiB.
class ZipWriter {
 public:
  void Add(std::string_view name, std::string_view bytes) {
    std::string fields;       // of both headers
    Append(fields, 2, 20);    // version needed
    Append(fields, 2, 0);     // flags
    Append(fields, 2, 0);     // stored
    Append(fields, 2, 0);     // time
    Append(fields, 2, 0x21);  // date: 1980-01-01
    Append(fields, 4, Crc32(bytes));
    Append(fields, 4, bytes.size());
    Append(fields, 4, bytes.size());
    Append(fields, 2, name.size());
    Append(fields, 2, 0);  // extra field
    const size_t offset = zip_.size();
    Append(zip_, 4, 0x04034b50);
    zip_ += fields;
    zip_ += name;
    zip_ += bytes;
    Append(directory_, 4, 0x02014b50);
    Append(directory_, 2, 20);  // version made by
    directory_ += fields;
    Append(directory_, 2, 0);  // comment
    Append(directory_, 2, 0);  // disk
    Append(directory_, 2, 0);  // internal attributes
    Append(directory_, 4, 0);  // external attributes
    Append(directory_, 4, offset);
    directory_ += name;
    ++files_;
  }

  std::string Finish() && {
    const size_t offset = zip_.size();
    zip_ += directory_;
    Append(zip_, 4, 0x06054b50);
    Append(zip_, 2, 0);  // disk
    Append(zip_, 2, 0);  // disk of the directory
    Append(zip_, 2, files_);
    Append(zip_, 2, files_);
    Append(zip_, 4, directory_.size());
    Append(zip_, 4, offset);
    Append(zip_, 2, 0);  // comment
    return std::move(zip_);
  }

 private:
  // Little-endian.
  static void Append(std::string& out, int bytes, uint64_t value) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
  }

  std::string zip_, directory_;
  size_t files_ = 0;
};

Error NoBundle(const ModelInfo& model, const std::string& why) {
  return {.code = ErrorCode::kNotFound,
          .description = fmt::format("model {}: {}", Quote(model.name), why),
          .reason = "NO_TOKENIZER_FILES"};
}

Result<std::shared_ptr<const TokenizerBundle>> Read(const ModelInfo& model) {
  std::error_code error;
  if (!fs::is_directory(model.checkpoint, error)) {
    return NoBundle(model, "its checkpoint is a file; expected: a directory with tokenizer files");
  }
  std::vector<fs::path> paths;
  int64_t bytes = 0;
  fs::directory_iterator entry(model.checkpoint, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unreadable;
    if (!IsTokenizerFile(entry->path()) || !entry->is_regular_file(unreadable)) continue;
    paths.push_back(entry->path());
    bytes += static_cast<int64_t>(entry->file_size(unreadable));
  }
  if (paths.empty()) return NoBundle(model, "its directory has no tokenizer files any more");
  if (bytes > TokenizerBundles::kMaxBytes) {
    return NoBundle(model, fmt::format("its tokenizer files have {} bytes; allowed: at most {}",
                                       bytes, TokenizerBundles::kMaxBytes));
  }
  std::sort(paths.begin(), paths.end());
  ZipWriter writer;
  try {
    for (const fs::path& path : paths)
      writer.Add(path.filename().string(), ReadText(path, TokenizerBundles::kMaxBytes));
  } catch (const LoadError& e) {
    return NoBundle(model, e.what());
  }
  auto bundle = std::make_shared<TokenizerBundle>();
  bundle->zip = std::move(writer).Finish();
  bundle->sha256 = Sha256Hex(bundle->zip);
  return std::shared_ptr<const TokenizerBundle>(std::move(bundle));
}

}  // namespace

Result<std::shared_ptr<const TokenizerBundle>> TokenizerBundles::Get(const ModelInfo& model) {
  std::weak_ptr<const TokenizerBundle>& kept = bundles_[model.name];
  if (auto bundle = kept.lock()) return bundle;
  auto read = Read(model);
  if (read.ok()) kept = read.value();
  return read;
}

}  // namespace triptych::server
