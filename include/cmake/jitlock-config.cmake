# find_package(jitlock): jitlock::jitlock, the shared library, and jitlock::static.

if(TARGET jitlock::jitlock)
  return()
endif()

# <prefix>/share/jitlock/cmake
get_filename_component(_jitlock_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_jitlock_places "${_jitlock_prefix}/lib" "${_jitlock_prefix}/lib64" "${_jitlock_prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
find_library(_jitlock_shared NAMES jitlock PATHS ${_jitlock_places} NO_DEFAULT_PATH NO_CACHE)
find_library(_jitlock_static NAMES libjitlock.a PATHS ${_jitlock_places} NO_DEFAULT_PATH NO_CACHE)

if(_jitlock_shared)
  add_library(jitlock::jitlock SHARED IMPORTED)
  set_target_properties(jitlock::jitlock PROPERTIES
    IMPORTED_LOCATION "${_jitlock_shared}"
    INTERFACE_INCLUDE_DIRECTORIES "${_jitlock_prefix}/include")
endif()

if(_jitlock_static)
  find_package(Threads REQUIRED)
  add_library(jitlock::static STATIC IMPORTED)
  set_target_properties(jitlock::static PROPERTIES
    IMPORTED_LOCATION "${_jitlock_static}"
    INTERFACE_INCLUDE_DIRECTORIES "${_jitlock_prefix}/include"
    # What Rust's standard library wants: `rustc --print native-static-libs`.
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m;gcc_s")
endif()

if(NOT TARGET jitlock::jitlock AND NOT TARGET jitlock::static)
  set(jitlock_FOUND FALSE)
  set(jitlock_NOT_FOUND_MESSAGE "no libjitlock in ${_jitlock_places}")
endif()

unset(_jitlock_prefix)
unset(_jitlock_places)
unset(_jitlock_shared)
unset(_jitlock_static)
