// jitlock from Go, by cgo.
package main

/*
#cgo pkg-config: jitlock
#include <jitlock.h>
#include <stdlib.h>

// The initial value is a macro, which cgo cannot see.
static jitlock_options_t initial(void) {
	jitlock_options_t options = JITLOCK_OPTIONS_INIT;
	return options;
}
*/
import "C"

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"unsafe"
)

type lock C.jitlock_t

func acquire(cache string, seconds float64) (lock, error) {
	path := C.CString(cache)
	defer C.free(unsafe.Pointer(path))
	const size = 1024
	message := (*C.char)(C.calloc(size, 1))
	defer C.free(unsafe.Pointer(message))
	options := C.initial()
	options.timeout_ms = C.int64_t(math.Ceil(seconds * 1000))
	// A goroutine may go on on another thread.
	options.flags = C.JITLOCK_ANY_THREAD
	options.error = message
	options.error_size = size
	var held C.jitlock_t
	if C.jitlock_acquire_with(path, &options, &held) != C.JITLOCK_OK {
		return 0, errors.New(C.GoString(message))
	}
	return lock(held), nil
}

func (held lock) release() error {
	if status := C.jitlock_release(C.jitlock_t(held)); status != C.JITLOCK_OK {
		return errors.New(C.GoString(C.jitlock_strerror(C.int32_t(status))))
	}
	return nil
}

func hold(cache string) error {
	held, err := acquire(cache, 600)
	if err != nil {
		return err
	}
	fmt.Println("held")
	bufio.NewReader(os.Stdin).ReadString('\n')
	if err := held.release(); err != nil {
		return err
	}
	fmt.Println("released")
	return nil
}

func try(cache, seconds string) error {
	limit, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return err
	}
	held, err := acquire(cache, limit)
	if err != nil {
		return err
	}
	fmt.Println("had it")
	return held.release()
}

func addOne(cache, file string) error {
	held, err := acquire(cache, 600)
	if err != nil {
		return err
	}
	if text, err := os.ReadFile(file); err != nil {
		return err
	} else if number, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return err
	} else if err := os.WriteFile(file, []byte(strconv.Itoa(number+1)), 0o666); err != nil {
		return err
	}
	return held.release()
}

func run(words []string) error {
	switch {
	case len(words) == 2 && words[0] == "hold":
		return hold(words[1])
	case len(words) == 3 && words[0] == "try":
		return try(words[1], words[2])
	case len(words) == 4 && words[0] == "count":
		times, err := strconv.Atoi(words[3])
		for i := 0; i < times && err == nil; i++ {
			err = addOne(words[1], words[2])
		}
		return err
	}
	return errors.New("usage: lock hold CACHE | try CACHE SECONDS | count CACHE FILE TIMES")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
