// The members of a JSON object that a client sent.
#ifndef TRIPTYCH_SERVER_HTTP_FIELDS_H_
#define TRIPTYCH_SERVER_HTTP_FIELDS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "server/core/error.h"

namespace triptych::server {

// The object that a request's body is, or why it is none.
Result<Json> ParseBody(const std::string& body);

// Reads members by name and type. A member that is null counts as absent, and so does one of a
// wrong type, which error() names; the first error stays. Ranges are the core's to check.
class Fields {
 public:
  // `path` is where the object is: "stream_options." or nothing. REQUIRES: an object, which
  // outlives this.
  explicit Fields(const Json& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  std::optional<bool> Bool(const std::string& name);
  std::optional<int64_t> Integer(const std::string& name);
  std::optional<int32_t> Int32(const std::string& name);
  std::optional<float> Number(const std::string& name);
  // Views the object's.
  std::optional<std::string_view> String(const std::string& name);
  // A list of token ids, empty if absent.
  std::vector<int32_t> TokenIds(const std::string& name);
  // The same of what that member holds. REQUIRES: an array.
  std::vector<int32_t> TokenIds(const std::string& name, const Json& array);
  // The member whatever it is, null if absent.
  const Json* Any(const std::string& name);
  // The same of one that must be there: what is `allowed` is said of one that is not.
  const Json* Need(const std::string& name, std::string_view allowed);

  // Members that change nothing.
  void Ignore(const std::set<std::string>& names);
  // A member that is there, and not `harmless`, asks for what there is not.
  void Lack(const std::string& name, const Json& harmless = nullptr);

  // The member of that name, or an entry of it, is `value` instead of `allowed`.
  void Refuse(const std::string& name, const Json& value, std::string_view allowed);
  void Fail(Error error);
  // The first error there was; or else the first member that nobody has asked for.
  std::optional<Error> Finish();

 private:
  const Json& object_;
  const std::string path_;
  std::set<std::string> known_;
  std::optional<Error> error_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_FIELDS_H_
