#include "engine/jinja/scope.h"

#include <bit>
#include <limits>

#include "engine/jinja/operators.h"

namespace triptych::jinja {
namespace {

struct LoopFunction final : Callable {
  LoopFunction(Heap& heap, std::function<Value(Heap&, const Arguments&)> function)
      : body(std::move(function)), charge(heap, kObjectBytes) {}
  int depth() const override { return kMaxValueDepth; }  // it refers to its loop
  Value Call(Heap& heap, const Arguments& arguments) override { return body(heap, arguments); }

  const std::function<Value(Heap&, const Arguments&)> body;
  const Heap::Charge charge;
};

Value MakeFunction(Heap& heap, std::function<Value(Heap&, const Arguments&)> body) {
  return Value(std::shared_ptr<Object>(std::make_shared<LoopFunction>(heap, std::move(body))));
}

}  // namespace

const Value* Scope::Find(Heap& heap, std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
    heap.Work(name.size() * std::bit_width(scope->variables_.size()));
    const auto found = scope->variables_.find(name);
    if (found != scope->variables_.end()) return &found->second;
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  const auto [variable, added] = variables_.insert_or_assign(name, std::move(value));
  if (added) charge_.Add(kVariableBytes);
}

bool Loop::Peek(size_t count) {
  const std::vector<Value>& items = list_.list()->items;
  while (ahead_.size() < count && next_ < items.size()) {
    const Value& item = items[next_++];
    if (keep_ == nullptr || keep_(item)) ahead_.push_back(item);
  }
  return ahead_.size() >= count;
}

bool Loop::Next() {
  if (!Peek(1)) return false;
  if (++index_ > 0) previous_ = std::move(item_);
  item_ = std::move(ahead_.front());
  ahead_.pop_front();
  return true;
}

void Loop::End() {
  keep_ = nullptr;
  recurse_ = nullptr;
  next_ = list_.list()->items.size();
}

int64_t Loop::CountAll() {
  if (keep_ == nullptr) {
    const size_t left = list_.list()->items.size() - next_;
    return index_ + 1 + static_cast<int64_t>(ahead_.size() + left);
  }
  Peek(std::numeric_limits<size_t>::max());
  return index_ + 1 + static_cast<int64_t>(ahead_.size());
}

std::optional<Value> Loop::Attribute(Heap& heap, std::string_view name) {
  if (name == "index") return Value::Of(index_ + 1);
  if (name == "index0") return Value::Of(index_);
  if (name == "first") return Value::Of(index_ == 0);
  if (name == "last") return Value::Of(!Peek(1));
  if (name == "length") return Value::Of(CountAll());
  if (name == "revindex") return Value::Of(CountAll() - index_);
  if (name == "revindex0") return Value::Of(CountAll() - index_ - 1);
  if (name == "depth") return Value::Of(int64_t{level_ + 1});
  if (name == "depth0") return Value::Of(int64_t{level_});
  if (name == "previtem") {
    return previous_ ? *previous_ : Value::Missing(heap, "there is no previous item");
  }
  if (name == "nextitem") {
    return Peek(1) ? ahead_.front() : Value::Missing(heap, "there is no next item");
  }
  if (name == "cycle") {
    return MakeFunction(heap, [index = index_](Heap&, const Arguments& arguments) {
      if (arguments.positional.empty()) throw Failure("cycle needs a value");
      return arguments.positional[static_cast<size_t>(index) % arguments.positional.size()];
    });
  }
  return std::nullopt;
}

Value Loop::Call(Heap&, const Arguments& arguments) {
  if (recurse_ == nullptr) throw Failure("the loop is not recursive");
  const Parameters parameters("loop", arguments, {"iterable"}, 1);
  return recurse_(*parameters[0]);
}

}  // namespace triptych::jinja
