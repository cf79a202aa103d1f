#include "engine/jinja/arguments.h"

#include <algorithm>

namespace triptych::jinja {

const Value* Arguments::Named(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Arguments Arguments::Rest() const {
  Arguments rest = *this;
  if (!rest.positional.empty()) rest.positional.erase(rest.positional.begin());
  return rest;
}

Parameters::Parameters(std::string_view callee, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : callee_(callee), names_(names.begin(), names.end()), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    throw Failure(callee_ + " has " + std::to_string(arguments.positional.size()) +
                  " arguments; allowed: at most " + std::to_string(names_.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    const auto index = static_cast<size_t>(found - names_.begin());
    if (found == names_.end() || values_[index] != nullptr) {
      throw Failure(callee_ + " has an unknown or repeated argument '" + name.substr(0, 40) + "'");
    }
    values_[index] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) throw Failure(callee_ + " needs the argument " + names_[i]);
  }
}

void Parameters::Refuse(size_t index, std::string_view allowed) const {
  throw Failure(callee_ + ": " + names_[index] + " is of type " +
                std::string(values_[index]->TypeName()) + "; allowed: " + std::string(allowed));
}

const Text* Parameters::TextAt(size_t index) const {
  if (values_[index] == nullptr || values_[index]->is_none()) return nullptr;
  const Text* const text = values_[index]->text();
  if (text == nullptr) Refuse(index, "str");
  return text;
}

int64_t Parameters::IntegerAt(size_t index, int64_t otherwise) const {
  if (values_[index] == nullptr) return otherwise;
  const auto number = WholeNumber(*values_[index]);
  if (!number) Refuse(index, "int");
  return *number;
}

bool Parameters::TruthAt(size_t index, bool otherwise) const {
  return values_[index] == nullptr ? otherwise : values_[index]->Truth();
}

}  // namespace triptych::jinja
