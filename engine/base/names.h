// Enumerations whose values have names in files, flags and messages. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_NAMES_H_
#define TRIPTYCH_ENGINE_BASE_NAMES_H_

#include <map>
#include <string>
#include <string_view>

namespace triptych {

// The values of an enumeration by their names. Its values are 0, 1, 2, ..., and a function
// std::string_view Name(Enum) names each of them in a switch without a default, and nothing else:
// the switch is the only list, and the compiler refuses one that forgets a value.
template <typename Enum>
const std::map<std::string, Enum>& Names() {
  static const std::map<std::string, Enum> names = [] {
    std::map<std::string, Enum> all;
    for (int i = 0; !Name(static_cast<Enum>(i)).empty(); ++i) {
      all.emplace(Name(static_cast<Enum>(i)), static_cast<Enum>(i));
    }
    return all;
  }();
  return names;
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_NAMES_H_
