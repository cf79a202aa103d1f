#include "engine/base/json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/quoted.h"

namespace triptych {
namespace {

constexpr size_t kShownErrorBytes = 240;  // of the parser's message, which may quote the document

// Builds the document from the parser's events.
template <typename Document>
class Builder final : public nlohmann::json_sax<Document> {
 public:
  Builder(const std::string& source, size_t max_values, size_t max_depth)
      : source_(source), max_values_(max_values), max_depth_(max_depth) {}

  Document Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(typename Document::binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return Open(Document::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Document::array()); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override {
    auto& object = open_.back()->template get_ref<typename Document::object_t&>();
    if constexpr (kIsOrdered) {
      if (!names_.back().insert(name).second) RefuseTwice(name);
      object.push_back({name, nullptr});
      member_ = &object.back().second;
    } else {
      const auto [member, added] = object.emplace(name, nullptr);
      if (!added) RefuseTwice(name);
      member_ = &member->second;
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const typename Document::exception& error) override {
    throw LoadError(source_ + ": not valid JSON: " + Printable(error.what(), kShownErrorBytes));
  }

 private:
  static constexpr bool kIsOrdered = std::is_same_v<Document, OrderedJson>;

  [[noreturn]] void RefuseTwice(const std::string& name) const {
    throw LoadError(source_ + ": names " + Quoted(name) + " twice");
  }

  // Stores the next value.
  bool Add(Document value) {
    Place(std::move(value));
    return true;
  }

  Document* Place(Document value) {
    if (++values_ > max_values_) {
      throw LoadError(source_ + ": holds more than " + std::to_string(max_values_) + " values");
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *member_ = std::move(value);
      return member_;
    }
    return &open_.back()->template get_ref<typename Document::array_t&>().emplace_back(
        std::move(value));
  }

  bool Open(Document container) {
    if (open_.size() == max_depth_) {
      throw LoadError(source_ + ": is nested too deeply; allowed: at most " +
                      std::to_string(max_depth_) + " levels");
    }
    open_.push_back(Place(std::move(container)));
    if constexpr (kIsOrdered) names_.emplace_back();
    return true;
  }

  bool Close() {
    open_.pop_back();
    if constexpr (kIsOrdered) names_.pop_back();
    return true;
  }

  const std::string& source_;
  const size_t max_values_;
  const size_t max_depth_;
  Document root_;
  // The open objects and arrays, outermost first. None moves while it is open, since nothing is
  // added to those around it.
  std::vector<Document*> open_;
  std::vector<std::set<std::string>> names_;  // of open objects' members, if they are ordered
  Document* member_ = nullptr;                // the member named last
  size_t values_ = 0;
};

template <typename Document>
Document Parse(std::string_view text, const std::string& source, size_t max_values,
               size_t max_depth) {
  // The parser takes a NUL byte for the end of its input.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    throw LoadError(source + ": not valid JSON: byte " + std::to_string(nul) + " is NUL");
  }
  Builder<Document> builder(source, max_values, max_depth);
  Document::sax_parse(text, &builder);
  return builder.Take();
}

// The end of the string that begins at `at`.
size_t EndOfString(std::string_view json, size_t at) {
  for (++at; json[at] != '"'; ++at) {
    if (json[at] == '\\') ++at;
  }
  return at + 1;
}

size_t SkipSpace(std::string_view json, size_t at) {
  return std::min(json.find_first_not_of(" \t\n\r", at), json.size());
}

// The end of the value that begins at `at`.
size_t EndOfValue(std::string_view json, size_t at) {
  size_t depth = 0;
  do {
    const char c = json[at];
    if (c == '"') {
      at = EndOfString(json, at);
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++at;
    // A number or word ends where something else begins.
    if (depth == 0 && c != '}' && c != ']') at = json.find_first_of(",}] \t\n\r", at);
  } while (depth > 0);
  return at;
}

}  // namespace

Json ParseJson(std::string_view text, const std::string& source, size_t max_values,
               size_t max_depth) {
  return Parse<Json>(text, source, max_values, max_depth);
}

OrderedJson ParseOrderedJson(std::string_view text, const std::string& source, size_t max_values,
                             size_t max_depth) {
  return Parse<OrderedJson>(text, source, max_values, max_depth);
}

std::string_view MemberText(std::string_view object, std::string_view name) {
  size_t at = SkipSpace(object, object.find('{') + 1);
  while (object[at] != '}') {
    if (object[at] == ',') at = SkipSpace(object, at + 1);
    const size_t key_end = EndOfString(object, at);
    const std::string_view key = object.substr(at, key_end - at);
    at = SkipSpace(object, SkipSpace(object, key_end) + 1);  // behind the colon
    const size_t end = EndOfValue(object, at);
    if (Json::parse(key).get_ref<const std::string&>() == name) {
      return object.substr(at, end - at);
    }
    at = SkipSpace(object, end);
  }
  return {};
}

std::string ShownJson(const Json& value) {
  return Printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace triptych
