#include "engine/base/json.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/quoted.h"

namespace triptych {
namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kShownErrorBytes = 240;  // of the parser's message, which may quote the document

// Builds the document from the parser's events.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& source, size_t max_values)
      : source_(source), max_values_(max_values) {}

  Json Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override {
    const auto [member, added] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!added) throw LoadError(source_ + ": names " + Quoted(name) + " twice");
    member_ = &member->second;
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    throw LoadError(source_ + ": not valid JSON: " + Printable(error.what(), kShownErrorBytes));
  }

 private:
  // Stores the next value.
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }

  Json* Place(Json value) {
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
    return &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
  }

  bool Open(Json container) {
    if (open_.size() == kMaxDepth) {
      throw LoadError(source_ + ": is nested too deeply; allowed: at most " +
                      std::to_string(kMaxDepth) + " levels");
    }
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string& source_;
  const size_t max_values_;
  Json root_;
  // The open objects and arrays, outermost first. None moves while it is open, since nothing is
  // added to those around it.
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // the member named last
  size_t values_ = 0;
};

}  // namespace

Json ParseJson(std::string_view text, const std::string& source, size_t max_values) {
  // The parser takes a NUL byte for the end of its input.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    throw LoadError(source + ": not valid JSON: byte " + std::to_string(nul) + " is NUL");
  }
  Builder builder(source, max_values);
  Json::sax_parse(text, &builder);
  return builder.Take();
}

std::string ShownJson(const Json& value) {
  return Printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace triptych
