// Text in columns, for reports. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_TABLE_H_
#define TRIPTYCH_ENGINE_BASE_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace triptych {

// Text in aligned columns under titles and a rule. Widths count UTF-8 characters.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;  // May have several lines.
    Align align = Align::kRight;
  };

  explicit Table(std::vector<Column> columns);

  size_t columns() const { return columns_.size(); }

  // REQUIRES: as many cells as columns, each without a newline.
  void AddRow(std::vector<std::string> cells);

  // Every line ends with a newline and has no trailing spaces.
  std::string ToString() const;

  // The table on its side: the first cells are the titles, and each row reads downwards. Rows that
  // do not fit side by side in `max_width` characters follow in further tables below.
  // REQUIRES: titles of one line.
  std::string Sideways(size_t max_width) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_TABLE_H_
