#include "engine/grammar/schema_references.h"

#include <algorithm>
#include <charconv>

#include "engine/base/quoted.h"
#include "engine/grammar/schema_keywords.h"

namespace triptych::grammar {
namespace {

std::string Unescaped(const std::string& part) {
  std::string text;
  for (size_t i = 0; i < part.size(); ++i) {
    unsigned value = 0;
    if (part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1')) {
      text += part[++i] == '0' ? '~' : '/';
    } else if (part[i] == '%' && i + 2 < part.size() &&
               std::from_chars(&part[i + 1], &part[i + 3], value, 16).ptr == &part[i + 3]) {
      text += static_cast<char>(value);
      i += 2;
    } else {
      text += part[i];
    }
  }
  return text;
}

}  // namespace

const OrderedJson& ResolveReference(const OrderedJson& root, const std::string& reference,
                                    const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    FailAt(PathOf(path, "$ref"), "is " + Quoted(reference) + ", " + why);
  };
  if (reference != "#" && !reference.starts_with("#/")) {
    refuse("which is not supported; allowed: # and #/ with the path of a schema");
  }
  const OrderedJson* found = &root;
  std::string pointer = reference.substr(1);
  for (size_t at = 0; at < pointer.size();) {
    const size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    const std::string key = Unescaped(pointer.substr(at + 1, end - at - 1));
    at = end;
    if (found->is_object() && found->contains(key)) {
      found = &(*found)[key];
      continue;
    }
    size_t index = 0;
    const auto [last, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool is_index = error == std::errc() && last == key.data() + key.size();
    if (!found->is_array() || !is_index || index >= found->size()) refuse("which names nothing");
    found = &(*found)[index];
  }
  return *found;
}

}  // namespace triptych::grammar
