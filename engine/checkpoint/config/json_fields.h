// The fields of a JSON object, checked one by one. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_JSON_FIELDS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_JSON_FIELDS_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/names.h"
#include "engine/base/range.h"

namespace triptych::checkpoint {

// Takes fields out of a JSON object one by one, so that what is left over is unknown. Every
// function throws LoadError, naming the file, the field, its value and what is allowed.
class JsonFields {
 public:
  // `source` is the file's name for messages, `names` what fields are called there, where that is
  // something else. Throws LoadError unless `object` is one.
  JsonFields(Json object, std::string source, std::map<std::string, std::string> names = {});

  [[noreturn]] void Refuse(const std::string& field, const std::string& value,
                           const std::string& allowed) const;
  [[noreturn]] void RefuseValue(const std::string& field, const Json& value,
                                const std::string& allowed) const;
  [[noreturn]] void RefuseMissing(const std::string& field) const;

  const std::string& source() const { return source_; }
  bool Has(const std::string& field) const { return object_.contains(field); }

  // Absent fields give `fallback`, or are refused where that is null.
  Json Take(const std::string& field, const Json& fallback);
  int64_t Int(const std::string& field, int64_t min, int64_t max, const Json& fallback = nullptr);
  int64_t CheckedInt(const std::string& field, const Json& value, int64_t min, int64_t max) const;
  double PositiveNumber(const std::string& field, double max, const Json& fallback = nullptr);
  // The float next to a number, which is in the range as a float. The field must be there.
  float Float(const std::string& field, const Range<float>& range);
  bool Bool(const std::string& field, bool fallback);
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

  // Fields that change nothing, whatever they say.
  void Ignore(const std::string& field) { object_.erase(field); }
  // A field that is refused unless it is absent or `value`.
  void Only(const std::string& field, const Json& value);
  // Fields that are null are absent from now on.
  void DropNulls();

  void RefuseLeftOver() const;
  // What has been neither taken nor ignored.
  const Json& left_over() const { return object_; }

  // The fields of an object that is a field of this one.
  JsonFields Inside(const std::string& field, Json object) const {
    return JsonFields(std::move(object), Where(field));
  }

 private:
  // A field's name in the file, after the file's.
  std::string Where(const std::string& field) const;

  Json object_;
  std::string source_;
  std::map<std::string, std::string> names_;
};

// The fields of a JSON file of at most 16 MiB that a checkpoint may have beside its config; none if
// there is no such file. Throws LoadError.
std::optional<JsonFields> ReadFieldsIfThere(const std::filesystem::path& file);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_JSON_FIELDS_H_
