// Text tables for reports.
#ifndef TRIPTYCH_ENGINE_BASE_TABLE_H_
#define TRIPTYCH_ENGINE_BASE_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace triptych {

// Aligned text columns under titles and a rule. Widths count UTF-8 characters.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;  // may have several lines
    Align align = Align::kRight;
  };

  explicit Table(std::vector<Column> columns);

  size_t columns() const { return columns_.size(); }

  // REQUIRES: one cell for each column, without newlines.
  void AddRow(std::vector<std::string> cells);

  // Every line ends with a newline and has no trailing spaces.
  std::string ToString() const;

  // The transposed table: first cells become titles, and each row a column. Rows that do not fit
  // side by side in `max_width` characters follow in further tables below. REQUIRES: one-line
  // titles.
  std::string Sideways(size_t max_width) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_TABLE_H_
