#include "server/http/fields.h"

#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/quoted.h"

namespace triptych::server {
namespace {

constexpr std::string_view kInteger = "an integer";

// The value if it is an integer of 32 bits.
std::optional<int32_t> AsInt32(const Json& value) {
  using Limits = std::numeric_limits<int32_t>;
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(Limits::max())) return static_cast<int32_t>(number);
  } else if (value.is_number_integer()) {
    const int64_t number = value.get<int64_t>();
    if (number >= Limits::min()) return static_cast<int32_t>(number);
  }
  return std::nullopt;
}

}  // namespace

Result<JsonBody> ParseBody(const std::string& body) {
  Json value;
  try {
    value = ParseJson(body, "the body", kMaxJsonValues, kMaxBodyDepth);
  } catch (const LoadError& e) {
    return InvalidArgument("", e.what());
  }
  if (!value.is_object()) {
    return InvalidArgument("", "the body is " + ShownJson(value) + "; allowed: a JSON object");
  }
  return JsonBody{.json = std::move(value), .text = body};
}

const Json* Fields::Any(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json* Fields::Need(const std::string& name, std::string_view allowed) {
  const Json* value = Any(name);
  if (value == nullptr) {
    Fail(InvalidArgument(path_ + name, "is missing; allowed: " + std::string(allowed)));
  }
  return value;
}

std::optional<bool> Fields::Bool(const std::string& name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Refuse(name, *value, "true, false");
  return std::nullopt;
}

std::optional<int64_t> Fields::Integer(const std::string& name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  const bool fits = !value->is_number_unsigned() ||
                    value->get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
  if (value->is_number_integer() && fits) return value->get<int64_t>();
  Refuse(name, *value, value->is_number_integer() ? "an integer of 64 bits" : kInteger);
  return std::nullopt;
}

std::optional<int32_t> Fields::Int32(const std::string& name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (const auto number = AsInt32(*value)) return number;
  Refuse(name, *value, value->is_number_integer() ? "an integer of 32 bits" : kInteger);
  return std::nullopt;
}

std::optional<float> Fields::Number(const std::string& name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double number = value->get<double>();
    using Limits = std::numeric_limits<float>;
    if (std::abs(number) <= Limits::max()) return static_cast<float>(number);
    return number > 0 ? Limits::infinity() : -Limits::infinity();
  }
  Refuse(name, *value, "a number");
  return std::nullopt;
}

std::optional<std::string_view> Fields::String(const std::string& name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get_ref<const std::string&>();
  Refuse(name, *value, "a string");
  return std::nullopt;
}

std::vector<int32_t> Fields::TokenIds(const std::string& name) {
  const Json* value = Any(name);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    Refuse(name, *value, "an array of token ids");
    return {};
  }
  return TokenIds(name, *value);
}

std::vector<int32_t> Fields::TokenIds(const std::string& name, const Json& array) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& entry : array) {
    const auto id = AsInt32(entry);
    if (!id) {
      Refuse(name + "[" + std::to_string(ids.size()) + "]", entry, "a token id");
      return {};
    }
    ids.push_back(*id);
  }
  return ids;
}

void Fields::Ignore(const std::set<std::string>& names) {
  known_.insert(names.begin(), names.end());
}

void Fields::Lack(const std::string& name, const Json& harmless) {
  const Json* value = Any(name);
  if (value == nullptr || *value == harmless || *value == false || value->empty() || *value == "") {
    return;
  }
  Fail(InvalidArgument(path_ + name, "is " + ShownJson(*value) +
                                         ", which is not supported; allowed: " +
                                         (harmless.is_null() ? "none" : ShownJson(harmless))));
}

void Fields::Refuse(const std::string& name, const Json& value, std::string_view allowed) {
  Fail(InvalidArgument(path_ + name,
                       "is " + ShownJson(value) + "; allowed: " + std::string(allowed)));
}

void Fields::Fail(Error error) {
  if (!error_) error_ = std::move(error);
}

std::optional<Error> Fields::Finish() {
  if (error_) return error_;
  for (const auto& [name, value] : object_.items()) {
    if (value.is_null() || known_.contains(name)) continue;
    return InvalidArgument(path_ + Printable(name), "is not a known field");
  }
  return std::nullopt;
}

}  // namespace triptych::server
