#include "heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <vector>

#include "axis.h"

namespace nvio {
namespace {

// The grid and its room, in pixels.
constexpr int kColumns = 76;
constexpr int kRows = 36;
constexpr int kCell = 5;
constexpr int kWidth = 960;
constexpr int kLeft = 64;
constexpr int kApart = 72;  // of the map of reads and that of writes
constexpr int kHead = 104;
constexpr int kAbove = 44;
constexpr int kBelow = 40;
constexpr int kMapWidth = kColumns * kCell;
constexpr int kMapHeight = kRows * kCell;
constexpr std::size_t kMostFiles = 6;
constexpr std::size_t kMostName = 110;  // characters of a path

// A cell's colour is one of so many, each for four times the bytes of the one before.
constexpr int kShades = 5;
constexpr double kShadeFactor = 4;

constexpr std::string_view kStyle = R"(<style>
svg{background:#fff;color:#1b1f24;font:13px system-ui,sans-serif}
text{fill:currentColor}.t{font-size:16px;font-weight:600}.f{font-weight:600}.s{fill:#57606a}
.m{text-anchor:middle}.e{text-anchor:end}
.b{fill:none;stroke:#8c959f}.g{stroke:#8c959f;stroke-opacity:.35}
.r0{fill:#c6dbef}.r1{fill:#8fbde0}.r2{fill:#4f97cb}.r3{fill:#1f6bb0}.r4{fill:#08366b}
.w0{fill:#fdd7ad}.w1{fill:#fbb06a}.w2{fill:#ee7f2e}.w3{fill:#c4540a}.w4{fill:#7a2c02}
@media (prefers-color-scheme:dark){
svg{background:#0d1117;color:#e6edf3}.s{fill:#9198a1}
.r0{fill:#153350}.r1{fill:#1f5585}.r2{fill:#3380bf}.r3{fill:#6fb1e8}.r4{fill:#c9e4fb}
.w0{fill:#4a2a0c}.w1{fill:#7d4413}.w2{fill:#b9681f}.w3{fill:#ee9d52}.w4{fill:#ffdcb5}}
</style>
)";

template <typename... Values>
std::string text(const char* format, Values... values) {
  std::array<char, 512> line{};
  std::snprintf(line.data(), line.size(), format, values...);
  return line.data();
}

std::string escaped(const std::string& raw) {
  std::string all;
  for (const char c : raw) {
    switch (c) {
      case '&':
        all += "&amp;";
        break;
      case '<':
        all += "&lt;";
        break;
      case '>':
        all += "&gt;";
        break;
      case '"':
        all += "&quot;";
        break;
      default:
        // A path may be any bytes, an SVG only UTF-8 without control characters.
        all += static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~' ? '?' : c;
    }
  }
  return all;
}

std::string shortened(const std::string& path) {
  if (path.size() <= kMostName) return path;
  return "..." + path.substr(path.size() - kMostName + 3);
}

struct Map {
  double bytes = 0;
  std::size_t calls = 0;
  std::vector<double> cells = std::vector<double>(std::size_t{kColumns} * kRows);
};

struct FileMaps {
  std::string path;
  double low = 0;  // bytes: what offsets are shown
  double high = 0;
  std::array<Map, 2> ways;  // reads, writes
  double bytes() const { return ways[0].bytes + ways[1].bytes; }
};

bool moves(const TraceCall& call) {
  return call.length != 0 && (call.kind == TraceKind::read || call.kind == TraceKind::write);
}

// The part of [from, to] that lies in each of `cells` equal parts of [low, high].
struct Shares {
  int first = 0;
  std::vector<double> parts;
};
Shares shares_of(double from, double to, double low, double high, int cells) {
  const double size = (high - low) / cells;
  const auto cell = [&](double at) {
    return std::clamp(static_cast<int>((at - low) / size), 0, cells - 1);
  };
  Shares shares{cell(from), {}};
  const int last = cell(to);
  if (last == shares.first || !(to > from)) return {shares.first, {1}};
  for (int i = shares.first; i <= last; ++i) {
    const double begin = std::max(from, low + i * size);
    const double end = std::min(to, low + (i + 1) * size);
    shares.parts.push_back(std::max(0.0, end - begin) / (to - from));
  }
  return shares;
}

class Picture {
 public:
  Picture(const JobTrace& job, const std::string& title) : job_(job), title_(title) {
    measure();
    fill();
  }

  std::string draw() const {
    const std::size_t shown = files_.size();
    const int height = kHead + static_cast<int>(shown) * (kAbove + kMapHeight + kBelow) + 24;
    std::string all = text(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\" role=\"img\">\n",
        kWidth, height, kWidth, height);
    all += "<title>" + escaped(title_) + "</title>\n" + std::string(kStyle);
    all += label(16, 26, "t", escaped(shortened(title_)));
    all += legend();
    int top = kHead;
    for (const FileMaps& file : files_) {
      all += drawn(file, top);
      top += kAbove + kMapHeight + kBelow;
    }
    if (files_.empty()) all += label(16, kHead, "s", "No byte was moved.");
    if (left_out_ != 0) {
      all += label(16, top + 12, "s",
                   text("and %zu more files, of %s", left_out_, in_bytes(left_out_bytes_).c_str()));
    }
    return all + "</svg>\n";
  }

 private:
  // What is shown: the files that move most, from the first offset that was touched to the last.
  void measure() {
    std::vector<FileMaps> all(job_.files.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].path = job_.files[i].path;
      all[i].low = static_cast<double>(kMostOffset);
    }
    for (const auto& calls : job_.ranks) {
      for (const TraceCall& call : calls) {
        seconds_ =
            std::max(seconds_, static_cast<double>(call.start + call.duration) / kNanoseconds);
        if (!moves(call)) continue;
        FileMaps& file = all[call.file];
        Map& map = file.ways[call.kind == TraceKind::write ? 1 : 0];
        map.bytes += static_cast<double>(call.length);
        ++map.calls;
        file.low = std::min(file.low, static_cast<double>(call.offset));
        file.high = std::max(file.high, static_cast<double>(call.offset + call.length));
      }
    }
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return all[a].bytes() > all[b].bytes(); });
    places_.resize(all.size(), kMostFiles);
    for (const std::size_t i : order) {
      FileMaps& file = all[i];
      if (file.bytes() == 0) break;
      if (files_.size() == kMostFiles) {
        ++left_out_;
        left_out_bytes_ += file.bytes();
        continue;
      }
      // Offsets may be so large that one and the next are the same number here.
      file.high =
          std::max(file.high, std::nextafter(file.low, 2 * static_cast<double>(kMostOffset)));
      // From the file's begin, if little is lost by it.
      if (file.low < file.high / 8) file.low = 0;
      places_[i] = files_.size();
      files_.push_back(std::move(file));
    }
    seconds_ = std::max(seconds_, 1e-6);
  }

  void fill() {
    for (const auto& calls : job_.ranks) {
      for (const TraceCall& call : calls) {
        if (!moves(call) || places_[call.file] == kMostFiles) continue;
        FileMaps& file = files_[places_[call.file]];
        const double start = static_cast<double>(call.start) / kNanoseconds;
        const auto at = static_cast<double>(call.offset);
        const auto length = static_cast<double>(call.length);
        const Shares times =
            shares_of(start, start + static_cast<double>(call.duration) / kNanoseconds, 0, seconds_,
                      kColumns);
        const Shares offsets = shares_of(at, at + length, file.low, file.high, kRows);
        Map& map = file.ways[call.kind == TraceKind::write ? 1 : 0];
        for (std::size_t row = 0; row < offsets.parts.size(); ++row) {
          for (std::size_t column = 0; column < times.parts.size(); ++column) {
            double& cell = map.cells[(static_cast<std::size_t>(offsets.first) + row) * kColumns +
                                     static_cast<std::size_t>(times.first) + column];
            cell += length * offsets.parts[row] * times.parts[column];
            most_ = std::max(most_, cell);
          }
        }
      }
    }
  }

  static std::string label(int x, int y, const char* kind, const std::string& what) {
    return text("<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, kind) + what + "</text>\n";
  }

  // The most bytes of a cell of this shade; the darkest one's is a power of two.
  double bound(int shade) const {
    return std::exp2(std::ceil(std::log2(std::max(most_, 1.0)))) /
           std::pow(kShadeFactor, kShades - 1 - shade);
  }

  std::string legend() const {
    std::string all = label(16, 50, "s", "bytes moved in a cell of time and offset, at most");
    constexpr int kStep = 92;
    for (int way = 0; way < 2; ++way) {
      const int y = 64 + way * 20;
      all += label(16, y + 11, "", way == 0 ? "reads" : "writes");
      for (int shade = 0; shade < kShades; ++shade) {
        const int x = kLeft + 8 + shade * kStep;
        all += text("<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" class=\"%c%d\"/>", x, y,
                    way == 0 ? 'r' : 'w', shade);
        all += label(x + 20, y + 11, "s", in_bytes(bound(shade)));
      }
    }
    return all;
  }

  std::string drawn(const FileMaps& file, int top) const {
    std::string all = label(16, top + 18, "f", escaped(shortened(file.path)));
    for (int way = 0; way < 2; ++way) {
      all += drawn(file, way, kLeft + way * (kMapWidth + kApart), top + kAbove);
    }
    return all;
  }

  std::string drawn(const FileMaps& file, int way, int left, int top) const {
    const Map& map = file.ways[static_cast<std::size_t>(way)];
    const int bottom = top + kMapHeight;
    const std::string what = map.calls == 0
                                 ? std::string(way == 0 ? "no reads" : "no writes")
                                 : text("%s: %zu calls, %s", way == 0 ? "reads" : "writes",
                                        map.calls, in_bytes(map.bytes).c_str());
    std::string all = label(left, top - 8, "s", what);
    const Ticks times = time_ticks(0, seconds_);
    for (const auto& [value, written] : times.at) {
      const int x = left + static_cast<int>(std::lround(value / seconds_ * kMapWidth));
      all += text("<path class=\"g\" d=\"M%d %dv%d\"/>", x, top, kMapHeight + 4);
      all += label(x, bottom + 17, "s m", written);
    }
    all += label(left + kMapWidth, bottom + 32, "s e", "time, " + times.unit);
    const Ticks offsets = byte_ticks(file.low, file.high);
    for (const auto& [value, written] : offsets.at) {
      const double share = (value - file.low) / (file.high - file.low);
      const int y = bottom - static_cast<int>(std::lround(share * kMapHeight));
      all += text("<path class=\"g\" d=\"M%d %dh%d\"/>", left - 4, y, kMapWidth + 4);
      all += label(left - 7, y + 4, "s e", written);
    }
    all += label(left + kMapWidth, top - 8, "s e", "offset, " + offsets.unit);
    all += label(left, bottom + 32, "s",
                 "a cell: " + in_seconds(seconds_ / kColumns) + " of " +
                     in_bytes((file.high - file.low) / kRows));
    all += cells(map, way, left, top);
    all += text("<path class=\"b\" d=\"M%d %dh%dv%dh-%dz\"/>\n", left, top, kMapWidth, kMapHeight,
                kMapWidth);
    return all;
  }

  // All cells of one shade are one path; neighbours in a row are one rectangle.
  std::string cells(const Map& map, int way, int left, int top) const {
    std::array<std::string, kShades> shades;
    for (int row = 0; row < kRows; ++row) {
      const int y = top + (kRows - 1 - row) * kCell;
      for (int column = 0; column < kColumns;) {
        const int shade = shade_of(map, row, column);
        const int from = column;
        while (column < kColumns && shade_of(map, row, column) == shade) ++column;
        if (shade < 0) continue;
        const int width = (column - from) * kCell;
        shades[static_cast<std::size_t>(shade)] +=
            text("M%d %dh%dv%dh-%dz", left + from * kCell, y, width, kCell, width);
      }
    }
    std::string all;
    for (int shade = 0; shade < kShades; ++shade) {
      const std::string& path = shades[static_cast<std::size_t>(shade)];
      if (path.empty()) continue;
      all += text("<path class=\"%c%d\" d=\"", way == 0 ? 'r' : 'w', shade) + path + "\"/>\n";
    }
    return all;
  }

  int shade_of(const Map& map, int row, int column) const {
    const double bytes =
        map.cells[static_cast<std::size_t>(row) * kColumns + static_cast<std::size_t>(column)];
    if (bytes <= 0) return -1;
    int shade = 0;
    while (shade + 1 < kShades && bytes > bound(shade)) ++shade;
    return shade;
  }

  const JobTrace& job_;
  const std::string title_;
  double seconds_ = 0;
  double most_ = 0;  // bytes of a cell
  std::vector<FileMaps> files_;
  std::vector<std::size_t> places_;  // of the job's files, in files_
  std::size_t left_out_ = 0;
  double left_out_bytes_ = 0;
};

}  // namespace

std::string heat_map(const JobTrace& job, const std::string& title) {
  return Picture(job, title).draw();
}

}  // namespace nvio
