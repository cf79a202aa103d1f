#include "server/core/long_texts.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <memory>
#include <utility>

namespace triptych {

void LongTexts::Handle(Call call) {
  if (call.text_bytes <= kMaxQuickBytes) return HandleNow(call);
  auto share = std::make_shared<ByteBudget::Share>(budget_, call.client);
  if (!share->Hold(call.text_bytes)) return call.handle(MemoryPressure());
  worker_.Post([this, share = std::move(share), call = std::move(call)] {
    TakeTurn(call);
    share->Hold(0);  // the task itself may live on
  });
}

void LongTexts::TakeTurn(const Call& call) const {
  if (call.is_cancelled()) return call.handle(Cancelled());
  if (draining_) return call.handle(Draining());
  HandleNow(call);
}

void LongTexts::HandleNow(const Call& call) {
  try {
    call.handle(std::nullopt);
  } catch (const std::exception& e) {  // such as std::bad_alloc
    spdlog::error("a request fails: {}", e.what());
    call.handle(Internal("the request could not be handled"));
  }
}

}  // namespace triptych
