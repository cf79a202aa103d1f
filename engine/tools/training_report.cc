#include "engine/tools/training_report.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "engine/base/quantities.h"
#include "engine/tools/card.h"

namespace triptych::tools {
namespace {

std::string LossText(double loss) { return FormatDecimal(loss, 4); }

}  // namespace

std::string LossText(const Measurement& point) {
  std::string line =
      "step " + std::to_string(point.steps) + ": training loss " + LossText(point.training_loss);
  if (point.held_out_loss) line += ", held-out loss " + LossText(*point.held_out_loss);
  return line;
}

const Measurement* Best(const std::vector<Measurement>& curve) {
  const Measurement* best = nullptr;
  for (const Measurement& point : curve) {
    if (!point.held_out_loss) continue;
    if (best == nullptr || *point.held_out_loss < *best->held_out_loss) best = &point;
  }
  return best;
}

std::string CurveText(const std::vector<Measurement>& curve, const std::string& windows) {
  std::ostringstream text;
  const Measurement* const best = Best(curve);
  if (best == nullptr) {
    text << "Nothing was held out; the weights are the last.";
  } else if (curve.size() > 1) {
    text << "The weights are those after step " << best->steps << ", the best on the held-out part"
         << windows << " of " << curve.size() << " that were measured:";
  }
  text << "\n\n| step | training loss | held-out loss" << windows << " |\n|---:|---:|---:|\n";
  for (const Measurement& point : curve) {
    text << "| " << point.steps << " | " << LossText(point.training_loss) << " | ";
    if (point.held_out_loss) text << LossText(*point.held_out_loss) << " ";
    text << "|\n";
  }
  return text.str();
}

std::vector<std::pair<std::string, std::string>> CardFacts(const TrainOptions& options,
                                                           ComputeType compute) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"seed", std::to_string(options.seed)},
      {"computed in", std::string(Name(compute)) + " on " + std::to_string(at::get_num_threads()) +
                          (at::get_num_threads() == 1 ? " thread" : " threads")}};
  if (!options.teachers.empty()) {
    char shares[96];
    std::snprintf(shares, sizeof(shares), "%.4g of it against the text, %.4g against ",
                  1 - options.teacher_weight, options.teacher_weight);
    std::string names;
    for (const std::filesystem::path& teacher : options.teachers) {
      names += (names.empty() ? "`" : ", `") + LastName(teacher) + "`";
    }
    const bool several = options.teachers.size() > 1;
    facts.emplace_back("training loss", shares + std::string(several ? "the mean of " : "") +
                                            "what " + names + (several ? " expect" : " expects"));
  }
  return facts;
}

}  // namespace triptych::tools
