#include "engine/checkpoint/config/json_fields.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>

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

std::string JsonFields::Where(const std::string& field) const {
  const auto named = names_.find(field);
  return source_ + ": " + (named == names_.end() ? field : named->second);
}

void JsonFields::Refuse(const std::string& field, const std::string& value,
                        const std::string& allowed) const {
  throw LoadError(Where(field) + " is " + value + "; " + allowed);
}

void JsonFields::RefuseValue(const std::string& field, const Json& value,
                             const std::string& allowed) const {
  Refuse(field, ShownJson(value), allowed);
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

int64_t JsonFields::Int(const std::string& field, int64_t min, int64_t max, const Json& fallback) {
  return CheckedInt(field, Take(field, fallback), min, max);
}

int64_t JsonFields::CheckedInt(const std::string& field, const Json& value, int64_t min,
                               int64_t max) const {
  const std::string allowed =
      "allowed: an integer from " + std::to_string(min) + " to " + std::to_string(max);
  if (!value.is_number_integer()) RefuseValue(field, value, allowed);
  // Unsigned values beyond int64 would wrap.
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(max)) {
    RefuseValue(field, value, allowed);
  }
  const auto number = value.get<int64_t>();
  if (number < min || number > max) RefuseValue(field, value, allowed);
  return number;
}

double JsonFields::PositiveNumber(const std::string& field, double max, const Json& fallback) {
  const Json value = Take(field, fallback);
  if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > max) {
    std::ostringstream allowed;
    allowed << "allowed: a number above 0 and at most " << max;
    RefuseValue(field, value, allowed.str());
  }
  return value.get<double>();
}

float JsonFields::Float(const std::string& field, const Range<float>& range) {
  const Json value = Take(field, nullptr);
  // What is far beyond a float's largest has no float next to it.
  if (value.is_number() && std::abs(value.get<double>()) <= std::numeric_limits<float>::max()) {
    const float number = value.get<float>();
    if (range.Contains(number)) return number;
  }
  std::ostringstream allowed;
  allowed << "allowed: a number " << (range.above_low ? "above " : "from ") << range.low
          << (range.above_low ? " and at most " : " to ") << range.high;
  RefuseValue(field, value, allowed.str());
}

bool JsonFields::Bool(const std::string& field, bool fallback) {
  const Json value = Take(field, fallback);
  if (!value.is_boolean()) RefuseValue(field, value, "allowed: true, false");
  return value.get<bool>();
}

void JsonFields::Only(const std::string& field, const Json& value) {
  if (!Has(field)) return;
  const Json given = Take(field, nullptr);
  if (given != value) RefuseValue(field, given, "supported: " + value.dump());
}

void JsonFields::DropNulls() {
  for (auto it = object_.begin(); it != object_.end();) {
    it = it->is_null() ? object_.erase(it) : std::next(it);
  }
}

void JsonFields::RefuseLeftOver() const {
  for (const auto& [field, value] : object_.items()) {
    throw LoadError(Where(Printable(field)) + " is not a field that is known (value " +
                    ShownJson(value) + "); supported: without it");
  }
}

std::optional<JsonFields> ReadFieldsIfThere(const std::filesystem::path& file) {
  if (!Exists(file)) return std::nullopt;
  return JsonFields(ParseJson(ReadText(file, kMaxFileBytes), file.string()), file.string());
}

}  // namespace triptych::checkpoint
