#include "engine/checkpoint/tensors/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/quoted.h"

namespace triptych::checkpoint {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

const std::map<std::string, uint64_t>& ElementSizes() {
  static const std::map<std::string, uint64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
      {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  return sizes;
}

bool IsUnsigned(const Json& value) { return value.is_number_unsigned(); }

SafetensorsEntry ParseEntry(const std::string& name, const Json& value, uint64_t data_bytes,
                            const std::string& source) {
  const std::string where = source + ": tensor " + Printable(name) + ": ";
  if (!value.is_object()) throw LoadError(where + "must be an object");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(key)) throw LoadError(where + key + " is missing");
  }

  SafetensorsEntry entry;
  const Json& dtype = value["dtype"];
  const auto size =
      dtype.is_string() ? ElementSizes().find(dtype.get<std::string>()) : ElementSizes().end();
  if (size == ElementSizes().end()) {
    throw LoadError(where + "dtype " + ShownJson(dtype) + " is not known");
  }
  entry.dtype = size->first;

  const Json& shape = value["shape"];
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), IsUnsigned)) {
    throw LoadError(where + "shape " + ShownJson(shape) + " must be a list of sizes");
  }
  uint64_t bytes = size->second;
  for (const Json& dim : shape) {
    const auto extent = dim.get<uint64_t>();
    if (extent > INT64_MAX || __builtin_mul_overflow(bytes, extent, &bytes)) {
      throw LoadError(where + "shape " + ShownJson(shape) + " overflows");
    }
    entry.shape.push_back(static_cast<int64_t>(extent));
  }

  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !IsUnsigned(offsets[0]) ||
      !IsUnsigned(offsets[1])) {
    throw LoadError(where + "data_offsets " + ShownJson(offsets) + " must be [begin, end]");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > data_bytes) {
    throw LoadError(where + "data_offsets " + ShownJson(offsets) + " lie outside the file's " +
                    std::to_string(data_bytes) + " bytes of data");
  }
  if (entry.end - entry.begin != bytes) {
    throw LoadError(where + "data_offsets " + ShownJson(offsets) + " span " +
                    std::to_string(entry.end - entry.begin) + " bytes, but shape " +
                    ShownJson(shape) + " of " + entry.dtype + " takes " + std::to_string(bytes));
  }
  entry.bytes = bytes;
  return entry;
}

// Tensors must tile the data section: shared or unclaimed bytes could smuggle anything.
void CheckTiling(const std::map<std::string, SafetensorsEntry>& entries, uint64_t data_bytes,
                 const std::string& source) {
  std::vector<std::pair<const SafetensorsEntry*, const std::string*>> in_order;
  in_order.reserve(entries.size());
  for (const auto& [name, entry] : entries) in_order.emplace_back(&entry, &name);
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  uint64_t expected = 0;
  for (const auto& [entry, name] : in_order) {
    if (entry->begin < expected) {
      throw LoadError(source + ": tensor " + Printable(*name) + " overlaps the one before it");
    }
    if (entry->begin > expected) {
      throw LoadError(source + ": a gap of " + std::to_string(entry->begin - expected) +
                      " bytes before tensor " + Printable(*name));
    }
    expected = entry->end;
  }
  if (expected != data_bytes) {
    throw LoadError(source + ": " + std::to_string(data_bytes - expected) +
                    " bytes after the last tensor");
  }
}

// The length of a header, from the bytes before it.
uint64_t ReadHeaderLength(uint64_t file_bytes, const ReadBytes& read, const std::string& source) {
  if (file_bytes == 0) throw LoadError(source + ": is empty");
  if (file_bytes < kLengthBytes) {
    throw LoadError(source + ": " + std::to_string(file_bytes) +
                    " bytes is too short for a safetensors file");
  }
  std::array<std::byte, kLengthBytes> bytes;
  read(0, bytes);
  uint64_t length = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    throw LoadError(source + ": header size " + std::to_string(length) + " exceeds " +
                    (length > kMaxHeaderBytes ? "the limit of " + std::to_string(kMaxHeaderBytes)
                                              : "the file"));
  }
  return length;
}

}  // namespace

SafetensorsHeader ReadSafetensorsHeader(uint64_t file_bytes, const ReadBytes& read,
                                        const std::string& source) {
  std::string text(ReadHeaderLength(file_bytes, read, source), '\0');
  read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  const Json json = ParseJson(text, source + ": header");
  if (!json.is_object()) throw LoadError(source + ": header must hold a JSON object");

  SafetensorsHeader header;
  header.data_begin = kLengthBytes + text.size();
  const uint64_t data_bytes = file_bytes - header.data_begin;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") continue;
    header.entries.emplace(name, ParseEntry(name, value, data_bytes, source));
  }
  CheckTiling(header.entries, data_bytes, source);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path),
      header_(ReadSafetensorsHeader(
          file_.size(),
          [this](uint64_t offset, std::span<std::byte> bytes) { file_.ReadAt(offset, bytes); },
          file_.name())) {}

std::vector<std::string> SafetensorsFile::TensorNames() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : header_.entries) names.push_back(name);
  return names;
}

const StoredTensor* SafetensorsFile::Find(const std::string& tensor) const {
  const auto found = header_.entries.find(tensor);
  return found == header_.entries.end() ? nullptr : &found->second;
}

void SafetensorsFile::ReadPart(const std::string& tensor, uint64_t begin,
                               std::span<std::byte> bytes) const {
  const SafetensorsEntry& entry = header_.entries.at(tensor);
  CheckPart(tensor, entry, begin, bytes.size());
  file_.ReadAt(header_.data_begin + entry.begin + begin, bytes);
}

void WriteSafetensors(StagedFile& file, const std::vector<SafetensorsTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const uint64_t end = offset + tensor.data.size();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');  // align the data

  std::string length;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  file.Write(length);
  file.Write(text);
  for (const SafetensorsTensor& tensor : tensors) file.Write(tensor.data);
}

void WriteSafetensors(const std::filesystem::path& path,
                      const std::vector<SafetensorsTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  StagedFile file(path);
  WriteSafetensors(file, tensors, metadata);
  file.Commit();
}

}  // namespace triptych::checkpoint
