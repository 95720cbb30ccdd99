#include "bench.h"

#include <array>
#include <chrono>
#include <dnnl.hpp>
#include <random>
#include <stdexcept>
#include <vector>

#include "cells.h"
#include "header.h"
#include "product.h"

namespace walks {
namespace {

struct Case {
  int left_planes;
  int right_planes;
  std::uint32_t left_cell;
  std::uint32_t right_cell;
  std::uint32_t out_cell;
};

// Powers by steps multiply by the adjacency matrix, so the right operand mostly has one plane.
constexpr std::array<Case, 6> kCases = {{{1, 1, 1, 1, 4},
                                         {2, 1, 1, 1, 4},
                                         {2, 2, 2, 2, 8},
                                         {3, 1, 2, 1, 8},
                                         {5, 1, 4, 1, 8},
                                         {5, 5, 4, 4, 8}}};

// Random cells that need exactly so many planes.
std::vector<std::byte> random_cells(std::int64_t count, std::uint32_t cell, int planes,
                                    std::mt19937_64& random) {
  const int bits = std::min(planes * kPlaneBits, static_cast<int>(cell) * 8);
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits);
  std::vector<std::byte> cells(static_cast<std::size_t>(count) * cell);
  for (std::int64_t i = 0; i < count; ++i) set_cell(cells.data(), cell, i, random() & mask);
  set_cell(cells.data(), cell, 0, mask);
  return cells;
}

class RawOneDnn {
 public:
  RawOneDnn(std::int64_t n, std::mt19937_64& random)
      : n_(n),
        a_(static_cast<std::size_t>(n * n)),
        b_(a_.size()),
        c_(a_.size()),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        a_desc_({n, n}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::ab),
        b_desc_({n, n}, dnnl::memory::data_type::s8, dnnl::memory::format_tag::ab),
        c_desc_({n, n}, dnnl::memory::data_type::s32, dnnl::memory::format_tag::ab),
#if DNNL_VERSION_MAJOR >= 3
        matmul_(dnnl::matmul::primitive_desc(engine_, a_desc_, b_desc_, c_desc_)) {
#else
        matmul_(
            dnnl::matmul::primitive_desc(dnnl::matmul::desc(a_desc_, b_desc_, c_desc_), engine_)) {
#endif
    for (auto& value : a_) value = static_cast<std::uint8_t>(random() & 127);
    for (auto& value : b_) value = static_cast<std::int8_t>(random() & 127);
  }

  void gemm() {
    const std::int32_t no_offset = 0;
    const dnnl_status_t status =
        dnnl_gemm_u8s8s32('N', 'N', 'F', n_, n_, n_, 1.0F, a_.data(), n_, 0, b_.data(), n_, 0, 0.0F,
                          c_.data(), n_, &no_offset);
    if (status != dnnl_success) throw std::runtime_error("oneDNN refused a product");
  }

  void matmul() {
    matmul_.execute(stream_, {{DNNL_ARG_SRC, dnnl::memory(a_desc_, engine_, a_.data())},
                              {DNNL_ARG_WEIGHTS, dnnl::memory(b_desc_, engine_, b_.data())},
                              {DNNL_ARG_DST, dnnl::memory(c_desc_, engine_, c_.data())}});
    stream_.wait();
  }

 private:
  std::int64_t n_;
  std::vector<std::uint8_t> a_;
  std::vector<std::int8_t> b_;
  std::vector<std::int32_t> c_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory::desc a_desc_;
  dnnl::memory::desc b_desc_;
  dnnl::memory::desc c_desc_;
  dnnl::matmul matmul_;
};

class ExactProduct {
 public:
  ExactProduct(const Case& what, std::int64_t n, std::mt19937_64& random)
      : case_(what),
        n_(n),
        left_(random_cells(n * n, what.left_cell, what.left_planes, random)),
        right_(random_cells(n * n, what.right_cell, what.right_planes, random)) {}

  void operator()() {
    left_planes_.load(left_.data(), case_.left_cell, n_, n_);
    right_planes_.load(right_.data(), case_.right_cell, n_, n_);
    block_.reset(n_, n_);
    block_.add(left_planes_, right_planes_);
    out_ = block_.narrow(case_.out_cell, largest(case_.out_cell)).data;
  }

  [[nodiscard]] int pairs() const { return left_planes_.count() * right_planes_.count(); }

  void check_row(std::int64_t row) const {
    for (std::int64_t col = 0; col < n_; ++col) {
      unsigned __int128 sum = 0;
      for (std::int64_t k = 0; k < n_; ++k) {
        sum +=
            static_cast<unsigned __int128>(get_cell(left_.data(), case_.left_cell, row * n_ + k)) *
            get_cell(right_.data(), case_.right_cell, k * n_ + col);
      }
      const auto cap = static_cast<unsigned __int128>(largest(case_.out_cell));
      if (get_cell(out_, case_.out_cell, row * n_ + col) !=
          static_cast<std::uint64_t>(sum > cap ? cap : sum)) {
        throw std::runtime_error("a product is wrong in row " + std::to_string(row) + ", column " +
                                 std::to_string(col));
      }
    }
  }

 private:
  Case case_;
  std::int64_t n_;
  std::vector<std::byte> left_;
  std::vector<std::byte> right_;
  const std::byte* out_ = nullptr;
  Planes left_planes_;
  Planes right_planes_;
  Accumulator block_;
};

template <typename Action>
double seconds(Action&& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Json bench(std::int64_t size, int repeats) {
  std::mt19937_64 random(1);
  RawOneDnn raw(size, random);
  Json record;
  record["size"] = size;
  record["onednn"] = std::to_string(dnnl_version()->major) + "." +
                     std::to_string(dnnl_version()->minor) + "." +
                     std::to_string(dnnl_version()->patch);
  record["isa"] = static_cast<int>(dnnl_get_effective_cpu_isa());
  record["vnni"] =
      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_vnni) ==
          dnnl_cpu_isa_avx512_core_vnni ||
      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx2_vnni) == dnnl_cpu_isa_avx2_vnni;
  Json cases = Json::array();
  for (const Case& what : kCases) {
    ExactProduct exact(what, size, random);
    // Once each before anything counts: code is generated and memory faulted in.
    raw.gemm();
    raw.matmul();
    exact();
    exact.check_row(size / 2);
    std::array<std::vector<double>, 3> times;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (int turn = 0; turn < 3; ++turn) {
        const auto which = static_cast<std::size_t>((repeat + turn) % 3);
        times[which].push_back(which == 0   ? seconds([&] { raw.gemm(); })
                               : which == 1 ? seconds([&] { raw.matmul(); })
                                            : seconds([&] { exact(); }));
      }
    }
    Json json;
    json["planes"] = {what.left_planes, what.right_planes};
    json["pairs"] = exact.pairs();
    json["cells"] = {what.left_cell, what.right_cell, what.out_cell};
    json["raw_gemm_s"] = times[0];
    json["raw_matmul_s"] = times[1];
    json["product_s"] = times[2];
    cases.push_back(std::move(json));
  }
  record["cases"] = std::move(cases);
  return record;
}

}  // namespace walks
