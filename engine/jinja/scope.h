// Variables, loops and macros while a template is rendered.
#ifndef TRIPTYCH_ENGINE_JINJA_SCOPE_H_
#define TRIPTYCH_ENGINE_JINJA_SCOPE_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/jinja/methods.h"
#include "engine/jinja/syntax.h"
#include "engine/jinja/value.h"

namespace triptych::jinja {

// The variables of a block. Names view the syntax tree or the template's variables.
class Scope {
 public:
  Scope(Heap& heap, std::shared_ptr<Scope> parent)
      : parent_(std::move(parent)), charge_(heap, kScopeBytes) {}

  // In this scope and its parents; null if there is none.
  const Value* Find(Heap& heap, std::string_view name) const;
  void Set(std::string_view name, Value value);
  void Clear() { variables_.clear(); }

 private:
  static constexpr size_t kScopeBytes = 256;

  static constexpr size_t kVariableBytes = 128;

  std::map<std::string_view, Value> variables_;
  const std::shared_ptr<Scope> parent_;
  Heap::Charge charge_;
};

// The iteration of a for statement and, in its body, the variable loop.
class Loop final : public Callable {
 public:
  using Keep = std::function<bool(const Value& item)>;
  using Recurse = std::function<Value(const Value& iterable)>;

  // `keep` is the loop's filter; it and `recurse` may be null.
  Loop(Heap& heap, Value list, Keep keep, Recurse recurse, int level)
      : list_(std::move(list)),
        keep_(std::move(keep)),
        recurse_(std::move(recurse)),
        level_(level),
        charge_(heap, 4 * kObjectBytes) {}

  // Moves to the next item; false if there is none.
  bool Next();
  const Value& item() const { return item_; }
  // No function is called from here on.
  void End();

  std::string_view TypeName() const override { return "LoopContext"; }
  bool is_callable() const override { return recurse_ != nullptr; }
  int depth() const override { return list_.depth() + 1; }
  std::optional<Value> Attribute(Heap& heap, std::string_view name) override;
  Value Call(Heap& heap, const Arguments& arguments) override;

 private:
  // True if there are `count` more items.
  bool Peek(size_t count);
  int64_t CountAll();

  const Value list_;
  Keep keep_;
  Recurse recurse_;
  const int level_;
  size_t next_ = 0;  // of list_
  std::deque<Value> ahead_;
  int64_t index_ = -1;
  Value item_;
  std::optional<Value> previous_;
  const Heap::Charge charge_;
};

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_SCOPE_H_
