#include "engine/checkpoint/config/json_fields.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "engine/base/file.h"
#include "engine/base/quoted.h"

namespace triptych::checkpoint {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;

}  // namespace

JsonFields::JsonFields(Json object, std::string source, std::map<std::string, std::string> names)
    : object_(std::move(object)), source_(std::move(source)), names_(std::move(names)) {
  if (!object_.is_object()) throw LoadError(source_ + ": must hold a JSON object");
}

std::string JsonFields::NameOf(const std::string& field) const {
  const auto named = names_.find(field);
  return named == names_.end() ? field : named->second;
}

std::string JsonFields::Where(const std::string& field) const {
  return source_ + ": " + NameOf(field);
}

void JsonFields::Refuse(const std::string& field, const std::string& value,
                        const std::string& allowed) const {
  throw LoadError(Where(field) + " is " + value + "; " + allowed);
}

void JsonFields::RefuseValue(const std::string& field, const Json& value,
                             const std::string& allowed) const {
  Refuse(field, ShownJson(value), allowed);
}

void JsonFields::RefuseUnsupported(const std::string& field, const Json& value,
                                   const std::string& supported) const {
  throw UnsupportedError(Where(field) + " is " + ShownJson(value) + "; supported: " + supported);
}

void JsonFields::RefuseMissing(const std::string& field) const {
  throw LoadError(Where(field) + " is missing");
}

Json JsonFields::Take(const std::string& field, const Json& fallback) {
  const auto it = object_.find(field);
  if (it == object_.end()) {
    if (fallback.is_null()) RefuseMissing(field);
    return fallback;
  }
  Json value = std::move(*it);
  object_.erase(it);
  return value;
}

int64_t JsonFields::Int(const std::string& field, const Range<int64_t>& range,
                        const Json& fallback) {
  return CheckedInt(field, Take(field, fallback), range);
}

int64_t JsonFields::CheckedInt(const std::string& field, const Json& value,
                               const Range<int64_t>& range) const {
  const std::optional<int64_t> number = WholeNumber(value);
  if (!value.is_number_integer() || !number || !range.Contains(*number)) {
    RefuseValue(field, value, "allowed: " + Described(range));
  }
  return *number;
}

double JsonFields::Number(const std::string& field, const Range<double>& range,
                          const Json& fallback) {
  const Json value = Take(field, fallback);
  if (!value.is_number() || !range.Contains(value.get<double>())) {
    RefuseValue(field, value, "allowed: " + Described(range));
  }
  return value.get<double>();
}

std::vector<double> JsonFields::Numbers(const std::string& field) {
  const Json value = Take(field, nullptr);
  const auto is_number = [](const Json& element) { return element.is_number(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_number)) {
    RefuseValue(field, value, "allowed: a list of numbers");
  }
  return value.get<std::vector<double>>();
}

float JsonFields::Float(const std::string& field, const Range<float>& range) {
  const Json value = Take(field, nullptr);
  // A number far beyond the largest float has no nearest float.
  if (value.is_number() && std::abs(value.get<double>()) <= std::numeric_limits<float>::max()) {
    const float number = value.get<float>();
    if (range.Contains(number)) return number;
  }
  RefuseValue(field, value, "allowed: " + Described(range));
}

bool JsonFields::Bool(const std::string& field, bool fallback) {
  const Json value = Take(field, fallback);
  if (!value.is_boolean()) RefuseValue(field, value, "allowed: true, false");
  return value.get<bool>();
}

std::string JsonFields::Text(const std::string& field, const Json& fallback) {
  const Json value = Take(field, fallback);
  if (!value.is_string()) RefuseValue(field, value, "allowed: a text");
  return value.get<std::string>();
}

Json JsonFields::List(const std::string& field) {
  Json list = Take(field, nullptr);
  if (!list.is_array()) RefuseValue(field, list, "allowed: a list");
  return list;
}

void JsonFields::Only(const std::string& field, const Json& value) {
  if (!Has(field)) return;
  const Json given = Take(field, nullptr);
  if (given != value) RefuseUnsupported(field, given, ShownJson(value));
}

void JsonFields::DropNulls() {
  for (auto it = object_.begin(); it != object_.end();) {
    it = it->is_null() ? object_.erase(it) : std::next(it);
  }
}

void JsonFields::RefuseLeftOver() const {
  for (const auto& [field, value] : object_.items()) {
    throw UnsupportedError(Where(Printable(field)) + " is not a field that is known (value " +
                           ShownJson(value) + "); supported: without it");
  }
}

std::optional<int64_t> WholeNumber(const Json& value) {
  constexpr double kMost = 9e18;  // within int64
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::floor(number) != number || std::abs(number) > kMost) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

std::optional<JsonFields> ReadFieldsIfThere(const std::filesystem::path& file) {
  if (!Exists(file)) return std::nullopt;
  return JsonFields(ParseJson(ReadText(file, kMaxFileBytes), file.string()), file.string());
}

}  // namespace triptych::checkpoint
