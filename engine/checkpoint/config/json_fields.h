// Reader of a JSON object's fields, one by one.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_JSON_FIELDS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_JSON_FIELDS_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/names.h"
#include "engine/base/range.h"

namespace triptych::checkpoint {

// A value that other programs may serve.
class UnsupportedError : public LoadError {
 public:
  using LoadError::LoadError;
};

// Takes fields out of a JSON object one by one, so that the fields left over are unknown. Checks
// presence, types and single ranges. Every function throws LoadError, naming the file, the field,
// its value and what is allowed.
class JsonFields {
 public:
  // `source` is the file's name for messages. `names` are the fields' names in the file, where the
  // two differ. Throws LoadError unless `object` is an object.
  JsonFields(Json object, std::string source, std::map<std::string, std::string> names = {});

  [[noreturn]] void Refuse(const std::string& field, const std::string& value,
                           const std::string& allowed) const;
  [[noreturn]] void RefuseValue(const std::string& field, const Json& value,
                                const std::string& allowed) const;
  // For a value that other programs may serve: throws UnsupportedError, as do Only and
  // RefuseLeftOver.
  [[noreturn]] void RefuseUnsupported(const std::string& field, const Json& value,
                                      const std::string& supported) const;
  [[noreturn]] void RefuseMissing(const std::string& field) const;

  const std::string& source() const { return source_; }
  const std::map<std::string, std::string>& names() const { return names_; }
  // A field's name in the file.
  std::string NameOf(const std::string& field) const;
  bool Has(const std::string& field) const { return object_.contains(field); }

  // Absent fields give `fallback`; a null `fallback` refuses them.
  Json Take(const std::string& field, const Json& fallback);
  int64_t Int(const std::string& field, const Range<int64_t>& range,
              const Json& fallback = nullptr);
  int64_t CheckedInt(const std::string& field, const Json& value,
                     const Range<int64_t>& range) const;
  double Number(const std::string& field, const Range<double>& range,
                const Json& fallback = nullptr);
  // The float nearest to a number; it must be in the range. The field must be there.
  float Float(const std::string& field, const Range<float>& range);
  // A list of numbers, which must be there.
  std::vector<double> Numbers(const std::string& field);
  bool Bool(const std::string& field, bool fallback);
  std::string Text(const std::string& field, const Json& fallback = nullptr);
  // A list, which must be there.
  Json List(const std::string& field);
  template <typename Enum>
  Enum Choice(const std::string& field, const Json& fallback = nullptr) {
    const Json value = Take(field, fallback);
    std::string allowed = "allowed:";
    for (const auto& [name, named] : Names<Enum>()) {
      if (value.is_string() && value.get_ref<const std::string&>() == name) return named;
      allowed += (allowed.back() == ':' ? " \"" : ", \"") + name + '"';
    }
    RefuseValue(field, value, allowed);
  }

  // Drops a field that changes nothing, whatever its value.
  void Ignore(const std::string& field) { object_.erase(field); }
  // Refuses a field unless it is absent or `value`.
  void Only(const std::string& field, const Json& value);
  // Drops the fields that are null.
  void DropNulls();

  // Where the model's context comes from if not from the field of its positions, for the log.
  void SetContextOrigin(std::string origin) { context_origin_ = std::move(origin); }
  const std::string& context_origin() const { return context_origin_; }

  void RefuseLeftOver() const;
  // The fields that have been neither taken nor ignored.
  const Json& left_over() const { return object_; }

  // The fields of an object within this one.
  JsonFields Inside(const std::string& field, Json object) const {
    return JsonFields(std::move(object), Where(field));
  }

 private:
  // "FILE: FIELD", by their names for messages.
  std::string Where(const std::string& field) const;

  Json object_;
  std::string source_;
  std::map<std::string, std::string> names_;
  std::string context_origin_;
};

// The value of an integer, also if it is written as 50.0. None for other values, and beyond int64.
std::optional<int64_t> WholeNumber(const Json& value);

// The fields of one of a checkpoint's optional JSON files, at most 16 MiB; none if there is no such
// file. Throws LoadError.
std::optional<JsonFields> ReadFieldsIfThere(const std::filesystem::path& file);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_JSON_FIELDS_H_
