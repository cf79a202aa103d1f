#include "engine/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/base/file.h"
#include "engine/model/config.h"

namespace triptych {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr int kMaxHeaderDepth = 16;  // printing a value recurses as deep as it is nested

const std::map<std::string, uint64_t>& ElementSizes() {
  static const std::map<std::string, uint64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"U16", 2}, {"I16", 2}, {"F16", 2}, {"BF16", 2},
      {"U32", 4},  {"I32", 4}, {"F32", 4}, {"U64", 8}, {"I64", 8}, {"F64", 8}};
  return sizes;
}

// Refuses names that stand twice in one object; a JSON library would keep the last silently.
Json ParseWithoutDuplicates(std::string_view text, const std::string& source) {
  std::vector<std::set<std::string>> open_objects;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxHeaderDepth) throw LoadError(source + ": header is nested too deeply");
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key &&
        !open_objects.back().insert(parsed.get<std::string>()).second) {
      throw LoadError(source + ": header names \"" + parsed.get<std::string>() + "\" twice");
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception& e) {
    throw LoadError(source + ": header is not valid JSON: " + e.what());
  }
}

bool IsUnsigned(const Json& value) { return value.is_number_unsigned(); }

SafetensorsEntry ParseEntry(const std::string& name, const Json& value, uint64_t data_bytes,
                            const std::string& source) {
  const std::string where = source + ": tensor " + name + ": ";
  if (!value.is_object()) throw LoadError(where + "must be an object");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(key)) throw LoadError(where + key + " is missing");
  }

  SafetensorsEntry entry;
  const Json& dtype = value["dtype"];
  const auto size =
      dtype.is_string() ? ElementSizes().find(dtype.get<std::string>()) : ElementSizes().end();
  if (size == ElementSizes().end()) {
    throw LoadError(where + "dtype " + dtype.dump() + " is not known");
  }
  entry.dtype = size->first;

  const Json& shape = value["shape"];
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), IsUnsigned)) {
    throw LoadError(where + "shape " + shape.dump() + " must be a list of sizes");
  }
  uint64_t bytes = size->second;
  for (const Json& dim : shape) {
    const auto extent = dim.get<uint64_t>();
    if (extent > INT64_MAX || __builtin_mul_overflow(bytes, extent, &bytes)) {
      throw LoadError(where + "shape " + shape.dump() + " overflows");
    }
    entry.shape.push_back(static_cast<int64_t>(extent));
  }

  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !IsUnsigned(offsets[0]) ||
      !IsUnsigned(offsets[1])) {
    throw LoadError(where + "data_offsets " + offsets.dump() + " must be [begin, end]");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > data_bytes) {
    throw LoadError(where + "data_offsets " + offsets.dump() + " lie outside the file's " +
                    std::to_string(data_bytes) + " bytes of data");
  }
  if (entry.end - entry.begin != bytes) {
    throw LoadError(where + "data_offsets " + offsets.dump() + " span " +
                    std::to_string(entry.end - entry.begin) + " bytes, but shape " + shape.dump() +
                    " of " + entry.dtype + " takes " + std::to_string(bytes));
  }
  return entry;
}

// Tensors must tile the data section: shared or unclaimed bytes could smuggle anything.
void CheckTiling(const std::map<std::string, SafetensorsEntry>& entries, uint64_t data_bytes,
                 const std::string& source) {
  std::vector<std::pair<const SafetensorsEntry*, const std::string*>> in_order;
  for (const auto& [name, entry] : entries) in_order.emplace_back(&entry, &name);
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  uint64_t expected = 0;
  for (const auto& [entry, name] : in_order) {
    if (entry->begin < expected) {
      throw LoadError(source + ": tensor " + *name + " overlaps the one before it");
    }
    if (entry->begin > expected) {
      throw LoadError(source + ": a gap of " + std::to_string(entry->begin - expected) +
                      " bytes before tensor " + *name);
    }
    expected = entry->end;
  }
  if (expected != data_bytes) {
    throw LoadError(source + ": " + std::to_string(data_bytes - expected) +
                    " bytes after the last tensor");
  }
}

// The JSON text of a header, by the length that stands before it.
std::string_view HeaderText(std::span<const std::byte> file, const std::string& source) {
  if (file.size() < kLengthBytes) {
    throw LoadError(source + ": " + std::to_string(file.size()) +
                    " bytes is too short for a safetensors file");
  }
  uint64_t length = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  }
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    throw LoadError(source + ": header size " + std::to_string(length) + " exceeds " +
                    (length > kMaxHeaderBytes ? "the limit of " + std::to_string(kMaxHeaderBytes)
                                              : "the file"));
  }
  return {reinterpret_cast<const char*>(file.data()) + kLengthBytes, length};
}

}  // namespace

std::map<std::string, SafetensorsEntry> ParseSafetensorsHeader(std::span<const std::byte> file,
                                                               const std::string& source) {
  const std::string_view text = HeaderText(file, source);
  const Json header = ParseWithoutDuplicates(text, source);
  if (!header.is_object()) throw LoadError(source + ": header must hold a JSON object");

  const uint64_t data_bytes = file.size() - kLengthBytes - text.size();
  std::map<std::string, SafetensorsEntry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    entries.emplace(name, ParseEntry(name, value, data_bytes, source));
  }
  CheckTiling(entries, data_bytes, source);
  return entries;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) {
  const std::string source = path.string();
  const auto refuse = [&](const char* what) -> LoadError {
    return LoadError(source + ": cannot be " + what + ": " + std::strerror(errno));
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw refuse("opened");
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    throw LoadError(source + ": is not a regular file");
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) {
    close(fd);
    throw LoadError(source + ": is empty");
  }
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) throw refuse("mapped");
  file_ = {static_cast<const std::byte*>(mapped), size};
  try {
    entries_ = ParseSafetensorsHeader(file_, source);
    data_ = file_.subspan(kLengthBytes + HeaderText(file_, source).size());
  } catch (...) {
    munmap(mapped, size);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { munmap(const_cast<std::byte*>(file_.data()), file_.size()); }

std::span<const std::byte> SafetensorsFile::Data(const SafetensorsEntry& entry) const {
  return data_.subspan(entry.begin, entry.end - entry.begin);
}

void WriteSafetensors(const std::filesystem::path& path,
                      const std::vector<SafetensorsTensor>& tensors,
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

  ReplaceFile(path, [&](std::ostream& out) {
    for (uint64_t i = 0; i < kLengthBytes; ++i) {
      out.put(static_cast<char>(text.size() >> (8 * i) & 0xff));
    }
    out << text;
    for (const SafetensorsTensor& tensor : tensors) {
      out.write(reinterpret_cast<const char*>(tensor.data.data()),
                static_cast<std::streamsize>(tensor.data.size()));
    }
  });
}

}  // namespace triptych
