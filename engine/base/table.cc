#include "engine/base/table.h"

#include <algorithm>
#include <cassert>
#include <sstream>
#include <string_view>
#include <utility>

namespace triptych {
namespace {

constexpr std::string_view kGap = "  ";

size_t Width(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string Repeat(std::string_view text, size_t times) {
  std::string repeated;
  while (times-- > 0) repeated += text;
  return repeated;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToString() const {
  std::vector<std::vector<std::string>> titles;
  std::vector<size_t> widths;
  size_t title_lines = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    titles.push_back(Lines(columns_[c].title));
    title_lines = std::max(title_lines, titles.back().size());
    size_t width = 0;
    for (const std::string& line : titles.back()) width = std::max(width, Width(line));
    for (const auto& row : rows_) width = std::max(width, Width(row[c]));
    widths.push_back(width);
  }

  std::string text;
  const auto add_line = [&](auto&& cell) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string content = cell(c);
      const std::string padding(widths[c] - Width(content), ' ');
      if (c > 0) line += kGap;
      line += columns_[c].align == Align::kLeft ? content + padding : padding + content;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  for (size_t i = 0; i < title_lines; ++i) {
    add_line([&](size_t c) {
      const size_t first = title_lines - titles[c].size();  // titles are aligned to the rule below
      return i < first ? std::string() : titles[c][i - first];
    });
  }
  add_line([&](size_t c) { return Repeat("─", widths[c]); });
  for (const auto& row : rows_) {
    add_line([&](size_t c) { return row[c]; });
  }
  return text;
}

std::string Table::Sideways(size_t max_width) const {
  size_t label_width = 0;
  for (size_t c = 1; c < columns_.size(); ++c) {
    label_width = std::max(label_width, Width(columns_[c].title));
  }

  std::string text;
  for (size_t begin = 0; begin < rows_.size();) {
    std::vector<Column> columns = {{"", Align::kLeft}};
    size_t width = label_width;
    size_t end = begin;
    for (; end < rows_.size(); ++end) {
      size_t row_width = 0;
      for (const std::string& cell : rows_[end]) row_width = std::max(row_width, Width(cell));
      width += kGap.size() + row_width;
      if (end > begin && width > max_width) break;
      columns.push_back({rows_[end][0]});
    }
    Table table(std::move(columns));
    for (size_t c = 1; c < columns_.size(); ++c) {
      std::vector<std::string> cells = {columns_[c].title};
      for (size_t r = begin; r < end; ++r) cells.push_back(rows_[r][c]);
      table.AddRow(std::move(cells));
    }
    if (begin > 0) text += "\n";
    text += table.ToString();
    begin = end;
  }
  return text;
}

}  // namespace triptych
