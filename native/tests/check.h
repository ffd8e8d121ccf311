// The few macros that the core's own tests need. A failed check prints where and what, and ends the test.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <iostream>

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);     \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (false)

#define CHECK_EQ(left, right)                                                          \
  do {                                                                                 \
    const auto& check_left = (left);                                                   \
    const auto& check_right = (right);                                                 \
    if (!(check_left == check_right)) {                                                \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << #left << " is " << check_left \
                << ", expected " << check_right << "\n";                               \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (false)

#define CHECK_OK(expression)                                                           \
  do {                                                                                 \
    ::stepwell::Status check_status = (expression);                                    \
    if (!check_status.ok()) {                                                          \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << check_status.message() << "\n"; \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (false)
