# Toolchain: build for 64-bit Arm on another machine and run the tests under qemu. TEGULA_SYSROOT (environment) is a
# directory with the Arm builds of jansson, PCRE2, utf8proc, zlib and cmocka; tools/aarch64-sysroot makes one. The C library
# comes with the cross compiler.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;/usr/aarch64-linux-gnu")
set(ENV{PKG_CONFIG_SYSROOT_DIR} $ENV{TEGULA_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} $ENV{TEGULA_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
# The sysroot's /usr/include is not the compiler's, so pkg-config must not leave it out as a system directory.
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_CFLAGS} 1)
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_LIBS} 1)
set(CMAKE_FIND_ROOT_PATH $ENV{TEGULA_SYSROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
