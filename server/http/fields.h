// Reader for the members of a client's JSON object.
#ifndef TRIPTYCH_SERVER_HTTP_FIELDS_H_
#define TRIPTYCH_SERVER_HTTP_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "server/core/error.h"

namespace triptych::server {

inline constexpr size_t kMaxBodyDepth = 64;  // of schemas, above all

// A request's body.
struct JsonBody {
  Json json;  // an object
  std::string_view text;
};

// Parses a body, which must outlive the result; an error unless it is a JSON object.
Result<JsonBody> ParseBody(const std::string& body);

// Reads members by name and type. A null member counts as absent. A member of a wrong type is read
// as absent and recorded as the error that Finish returns, unless there is one already. The core
// checks ranges.
class Fields {
 public:
  // `path`: prefix of the members' names in errors, such as "stream_options.". REQUIRES: `object`
  // is a JSON object and outlives this.
  explicit Fields(const Json& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  // The name of a member, in errors.
  std::string PathOf(const std::string& name) const { return path_ + name; }

  std::optional<bool> Bool(const std::string& name);
  std::optional<int64_t> Integer(const std::string& name);
  std::optional<int32_t> Int32(const std::string& name);
  std::optional<float> Number(const std::string& name);
  // Views the object's string.
  std::optional<std::string_view> String(const std::string& name);
  // A list of token ids; empty if absent.
  std::vector<int32_t> TokenIds(const std::string& name);
  // The token ids of `array`, which is member `name` or a part of it. REQUIRES: an array.
  std::vector<int32_t> TokenIds(const std::string& name, const Json& array);
  // The member of any type; null if absent.
  const Json* Any(const std::string& name);
  // A required member; if absent, an error that says what is `allowed`.
  const Json* Need(const std::string& name, std::string_view allowed);

  // Accepts and ignores members that change nothing.
  void Ignore(const std::set<std::string>& names);
  // Refuses an unsupported member unless it is absent, false, empty or equal to `harmless`.
  void Lack(const std::string& name, const Json& harmless = nullptr);

  // Records the error that member or entry `name` is `value` instead of `allowed`.
  void Refuse(const std::string& name, const Json& value, std::string_view allowed);
  // Records `error` unless there is one already.
  void Fail(Error error);
  // The first error, or else an error for the first member that was never read.
  std::optional<Error> Finish();

 private:
  const Json& object_;
  const std::string path_;
  std::set<std::string> known_;
  std::optional<Error> error_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_FIELDS_H_
