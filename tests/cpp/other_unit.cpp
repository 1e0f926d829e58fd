// A second translation unit: nothing in the header is defined twice.

#include <jitlock.hpp>

std::error_code code_of_other_unit() { return jitlock::errc::timeout; }
