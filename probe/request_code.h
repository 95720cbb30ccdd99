// What request-code asks of code-echo: the first byte of a datagram.
#pragma once

namespace tare::probe {

constexpr char kWithCode = 'c';
constexpr char kPlain = 'p';

}  // namespace tare::probe
