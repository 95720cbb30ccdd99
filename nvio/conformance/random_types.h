// Random trees of MPI's datatype constructors.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace random_types {

using Random = std::mt19937_64;
using Places = std::vector<std::int64_t>;

// Where each byte of the type's map lies, in its order: what MPI_Pack takes from there, out of
// buffers of `reach` bytes that hold the bytes of their own places.
inline Places packed_places(MPI_Datatype type, std::int64_t reach) {
  int size = 0;
  MPI_Type_size(type, &size);
  Places places(static_cast<std::size_t>(size));
  std::vector<unsigned char> buffer(static_cast<std::size_t>(reach));
  std::vector<unsigned char> packed(places.size());
  for (int part = 0; part < 3; ++part) {
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      buffer[i] = static_cast<unsigned char>(i >> (8 * part));
    }
    int position = 0;
    MPI_Pack(buffer.data(), 1, type, packed.data(), size, &position, MPI_COMM_WORLD);
    for (std::size_t i = 0; i < places.size(); ++i) {
      places[i] |= std::int64_t{packed[i]} << (8 * part);
    }
  }
  return places;
}

// Trees over one type, the unit. None of their bytes lie before the origin or overlap, be it in one
// of them or in several side by side. Units lie at multiples of the unit's extent: where that has a
// hole, others' units can lie in it.
class Types {
 public:
  // `in_order`: as MPI asks of a filetype, no byte lies before one that comes earlier in the map.
  Types(Random& random, MPI_Datatype unit, bool in_order)
      : random_(random), unit_(unit), in_order_(in_order) {
    MPI_Aint lower = 0;
    MPI_Type_get_extent(unit, &lower, &step_);
  }

  // Committed, of at least one byte and at most `most`; the caller frees it.
  MPI_Datatype make(int depth, MPI_Aint most) {
    for (;;) {
      MPI_Datatype type = tree(depth);
      int size = 0;
      MPI_Type_size(type, &size);
      const Span span = span_of(type);
      if (size > 0 && span.end <= most && span.extent <= most) {
        MPI_Type_commit(&type);
        return type;
      }
      MPI_Type_free(&type);
    }
  }

 private:
  struct Span {
    MPI_Aint begin, end, lower, extent;  // the end in whole units
  };
  Span span_of(MPI_Datatype type) const {
    Span span{};
    MPI_Aint length = 0;
    MPI_Type_get_true_extent(type, &span.begin, &length);
    span.end = span.begin + (length + step_ - 1) / step_ * step_;
    MPI_Type_get_extent(type, &span.lower, &span.extent);
    return span;
  }

  int draw(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  // Blocks of up to 3 elements of `extent` each, in disjoint places; each begins at a multiple of
  // `grain` behind the one before it.
  struct Blocks {
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
  };
  Blocks blocks(const Span& span, MPI_Aint grain, bool equal) {
    Blocks made;
    const int count = 1 + draw(4);
    const int length = 1 + draw(3);
    MPI_Aint at = grain * draw(3);
    for (int i = 0; i < count; ++i) {
      made.lengths.push_back(equal ? length : draw(4));
      made.places.push_back(at);
      const MPI_Aint spread = (made.lengths.back() - 1) * span.extent + span.end - span.begin;
      at += (std::max<MPI_Aint>(spread, 0) + grain - 1) / grain * grain + grain * draw(3);
    }
    if (!in_order_) {
      std::vector<std::size_t> order(made.places.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random_);
      const Blocks before = made;
      for (std::size_t i = 0; i < order.size(); ++i) {
        made.lengths[i] = before.lengths[order[i]];
        made.places[i] = before.places[order[i]];
      }
    }
    return made;
  }

  // Frees `child`.
  MPI_Datatype over(MPI_Datatype child, MPI_Datatype made) {
    MPI_Type_free(&child);
    return made;
  }

  // With room for its bytes: an array of a type that begins with a hole ends before its last byte,
  // and so do some of Open MPI 4.1's structures with a block of no elements.
  MPI_Datatype tree(int depth) {
    const MPI_Datatype made = any_tree(depth);
    const Span span = span_of(made);
    if (span.end - span.begin <= span.extent) return made;
    MPI_Datatype roomy{};
    MPI_Type_create_resized(made, span.begin, span.end - span.begin, &roomy);
    return over(made, roomy);
  }

  MPI_Datatype any_tree(int depth) {
    MPI_Datatype made{};
    if (depth == 0) {
      MPI_Type_contiguous(1 + draw(5), unit_, &made);
      return made;
    }
    if (draw(8) == 0) return structure(depth);
    const MPI_Datatype child = tree(depth - 1);
    const Span span = span_of(child);
    // A type whose bytes were all left out is as good as any; only nothing fits beside nothing.
    if (span.extent <= 0 || span.end <= span.begin) return child;
    switch (draw(12)) {
      case 0:
        MPI_Type_dup(child, &made);
        break;
      case 1:
        MPI_Type_contiguous(1 + draw(4), child, &made);
        break;
      case 2: {
        const int length = 1 + draw(3);
        MPI_Type_vector(1 + draw(4), length, length + draw(3), child, &made);
        break;
      }
      case 3: {
        const int length = 1 + draw(3);
        MPI_Type_create_hvector(1 + draw(4), length, length * span.extent + step_ * draw(5), child,
                                &made);
        break;
      }
      case 4: {
        const Blocks at = blocks(span, span.extent, false);
        MPI_Type_indexed(static_cast<int>(at.lengths.size()), at.lengths.data(),
                         in_extents(at, span).data(), child, &made);
        break;
      }
      case 5: {
        const Blocks at = blocks(span, step_, false);
        MPI_Type_create_hindexed(static_cast<int>(at.lengths.size()), at.lengths.data(),
                                 at.places.data(), child, &made);
        break;
      }
      case 6: {
        const Blocks at = blocks(span, span.extent, true);
        MPI_Type_create_indexed_block(static_cast<int>(at.lengths.size()), at.lengths[0],
                                      in_extents(at, span).data(), child, &made);
        break;
      }
      case 7: {
        const Blocks at = blocks(span, step_, true);
        MPI_Type_create_hindexed_block(static_cast<int>(at.lengths.size()), at.lengths[0],
                                       at.places.data(), child, &made);
        break;
      }
      case 8:
        subarray(child, &made);
        break;
      case 9:
        darray(child, &made);
        break;
      default: {
        const MPI_Aint lower = draw(2) == 0 ? 0 : std::min(span.begin, step_ * (draw(7) - 4));
        const MPI_Aint least = in_order_ ? span.end - lower : span.end - span.begin;
        MPI_Type_create_resized(child, lower, least + step_ * draw(4), &made);
      }
    }
    return over(child, made);
  }

  static std::vector<int> in_extents(const Blocks& at, const Span& span) {
    std::vector<int> places;
    for (const MPI_Aint place : at.places) places.push_back(static_cast<int>(place / span.extent));
    return places;
  }

  MPI_Datatype structure(int depth) {
    const int count = 1 + draw(3);
    std::vector<MPI_Datatype> types;
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    MPI_Aint at = step_ * draw(3);
    for (int i = 0; i < count; ++i) {
      types.push_back(tree(depth - 1));
      lengths.push_back(draw(4) == 0 ? 0 : 1 + draw(2));
      const Span span = span_of(types.back());
      places.push_back(at);
      at += std::max<MPI_Aint>(0, (lengths.back() - 1) * span.extent + span.end) + step_ * draw(3);
    }
    MPI_Datatype made{};
    MPI_Type_create_struct(count, lengths.data(), places.data(), types.data(), &made);
    for (MPI_Datatype& type : types) MPI_Type_free(&type);
    return made;
  }

  void subarray(MPI_Datatype child, MPI_Datatype* made) {
    const int dims = 1 + draw(3);
    std::vector<int> sizes;
    std::vector<int> parts;
    std::vector<int> starts;
    for (int i = 0; i < dims; ++i) {
      sizes.push_back(1 + draw(5));
      parts.push_back(1 + draw(sizes.back()));
      starts.push_back(draw(sizes.back() - parts.back() + 1));
    }
    MPI_Type_create_subarray(dims, sizes.data(), parts.data(), starts.data(),
                             draw(2) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN, child, made);
  }

  void darray(MPI_Datatype child, MPI_Datatype* made) {
    const int dims = 1 + draw(3);
    std::vector<int> sizes;
    std::vector<int> kinds;
    std::vector<int> arguments;
    std::vector<int> grid;
    int processes = 1;
    for (int i = 0; i < dims; ++i) {
      static constexpr int kKinds[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC,
                                       MPI_DISTRIBUTE_NONE};
      kinds.push_back(kKinds[draw(3)]);
      grid.push_back(kinds.back() == MPI_DISTRIBUTE_NONE ? 1 : 1 + draw(3));
      sizes.push_back(grid.back() + draw(5));
      const int least =
          kinds.back() == MPI_DISTRIBUTE_BLOCK ? (sizes.back() + grid.back() - 1) / grid.back() : 1;
      const bool by_default = kinds.back() == MPI_DISTRIBUTE_NONE || draw(2) == 0;
      arguments.push_back(by_default ? MPI_DISTRIBUTE_DFLT_DARG : least + draw(2));
      processes *= grid.back();
    }
    MPI_Type_create_darray(processes, draw(processes), dims, sizes.data(), kinds.data(),
                           arguments.data(), grid.data(),
                           draw(2) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN, child, made);
  }

  Random& random_;
  MPI_Datatype unit_;
  bool in_order_;
  MPI_Aint step_ = 1;
};

}  // namespace random_types
