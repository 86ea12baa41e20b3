// A disk that keeps only what was synced, below one folder: loaded into a process by LD_PRELOAD.
//
// Every change of a file or a directory below FAULTS_ROOT is carried out and written to FAULTS_JOURNAL, in order; from
// the journal `disk.py` works out what a power cut at that moment leaves. Syncs are journalled, not carried out.
//
//   FAULTS_CUT=n        the process dies at its n-th change or sync, before it
//   FAULTS_SHORT=seed   one write in four writes less than it was asked to
//   FAULTS_EIO=text:n   the n-th sync of a file whose path contains `text` fails with EIO, once
//   FAULTS_FULL=path    while `path` exists the disk is full: a write does half of its work once, then ENOSPC. The
//                       file's content, if any, is a text that a path must contain to be refused
//
// What it does not model (a writable shared mapping, copy_file_range, symbolic links) aborts with a message.

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "journal.h"

static ssize_t change_vector(int file, const struct iovec* data, int parts, off_t offset, int positioned) {
  enter();
  size_t asked = 0;
  for (int part = 0; part < parts; part++) asked += data[part].iov_len;
  ssize_t granted = room(tracked[file], asked);
  ssize_t written = -1;
  if (granted >= 0) {
    struct iovec cut[64];
    int count = 0;
    size_t left = (size_t)granted;
    if (parts > 64) stop("a vector of more than 64 parts");
    for (; count < parts && left; count++) {
      size_t length = data[count].iov_len < left ? data[count].iov_len : left;
      cut[count] = (struct iovec){data[count].iov_base, length};
      left -= length;
    }
    written = positioned ? REAL(pwritev)(file, cut, count, offset) : REAL(writev)(file, cut, count);
    if (written > 0) {
      off_t at = positioned ? offset : lseek(file, 0, SEEK_CUR) - written;
      put((Entry){.kind = 'w', .inode = inode_of(file), .offset = (uint64_t)at, .data_length = (uint32_t)written}, NULL,
          NULL, cut, count);
    }
  }
  done();
  return written;
}

EXPORT ssize_t write(int file, const void* data, size_t length) {
  if (!is_tracked(file)) return REAL(write)(file, data, length);
  return change_vector(file, &(struct iovec){(void*)data, length}, 1, 0, 0);
}

EXPORT ssize_t writev(int file, const struct iovec* data, int parts) {
  if (!is_tracked(file)) return REAL(writev)(file, data, parts);
  return change_vector(file, data, parts, 0, 0);
}

EXPORT ssize_t pwrite(int file, const void* data, size_t length, off_t offset) {
  if (!is_tracked(file)) return REAL(pwrite)(file, data, length, offset);
  return change_vector(file, &(struct iovec){(void*)data, length}, 1, offset, 1);
}

EXPORT ssize_t pwrite64(int file, const void* data, size_t length, off64_t offset) {
  return pwrite(file, data, length, offset);
}

EXPORT ssize_t pwritev(int file, const struct iovec* data, int parts, off_t offset) {
  if (!is_tracked(file)) return REAL(pwritev)(file, data, parts, offset);
  return change_vector(file, data, parts, offset, 1);
}

EXPORT ssize_t pwritev64(int file, const struct iovec* data, int parts, off64_t offset) {
  return pwritev(file, data, parts, offset);
}

EXPORT ssize_t pwritev2(int file, const struct iovec* data, int parts, off_t offset, int flags) {
  if (!is_tracked(file)) return REAL(pwritev2)(file, data, parts, offset, flags);
  return change_vector(file, data, parts, offset, offset != -1);
}

EXPORT ssize_t pwritev64v2(int file, const struct iovec* data, int parts, off64_t offset, int flags) {
  return pwritev2(file, data, parts, offset, flags);
}

static int open_at(int at, const char* path, int flags, mode_t mode) {
  int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
  Place place = place_of(at, path);
  if (!place.tracked || (flags & O_TMPFILE) == O_TMPFILE) return REAL(openat)(at, path, flags, mode);
  if (!writes) {
    int file = REAL(openat)(at, path, flags, mode);  // a folder is synced, and `*at` calls start, from one such
    if (file >= 0 && file < FILES) tracked[file] = strdup(place.path);
    return file;
  }
  enter();
  uint64_t before = inode_at(place.path);
  int file = -1;
  if (!before && full(place.path))
    errno = ENOSPC;
  else
    file = REAL(openat)(at, path, flags, mode);
  if (file >= FILES) stop("too many open files");
  if (file >= 0) {
    tracked[file] = strdup(place.path);
    uint64_t inode = inode_of(file);
    if (!before)
      put((Entry){.kind = 'c', .inode = inode, .folder = place.folder, .offset = mode_at(place.path)}, name_of(&place),
          NULL, NULL, 0);
    if (before && (flags & O_TRUNC)) put((Entry){.kind = 't', .inode = inode, .offset = 0}, NULL, NULL, NULL, 0);
  }
  done();
  return file;
}

static mode_t mode_of(int flags, va_list list) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, mode_t) : 0;
}

#define OPEN(name)                                    \
  EXPORT int name(const char* path, int flags, ...) { \
    va_list list;                                     \
    va_start(list, flags);                            \
    mode_t mode = mode_of(flags, list);               \
    va_end(list);                                     \
    return open_at(AT_FDCWD, path, flags, mode);      \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                          \
  EXPORT int name(int at, const char* path, int flags, ...) { \
    va_list list;                                             \
    va_start(list, flags);                                    \
    mode_t mode = mode_of(flags, list);                       \
    va_end(list);                                             \
    return open_at(at, path, flags, mode);                    \
  }
OPENAT(openat)
OPENAT(openat64)

EXPORT int creat(const char* path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

EXPORT int close(int file) {
  if (is_tracked(file)) {
    free(tracked[file]);
    tracked[file] = NULL;
  }
  return REAL(close)(file);
}

EXPORT int dup2(int file, int other) {
  if (is_tracked(file)) stop("dup2 of a file below the root");
  return REAL(dup2)(file, other);
}

static int resize(int file, off_t size, char kind) {
  put((Entry){.kind = kind, .inode = inode_of(file), .offset = (uint64_t)size}, NULL, NULL, NULL, 0);
  return 0;
}

EXPORT int ftruncate(int file, off_t size) {
  if (!is_tracked(file)) return REAL(ftruncate)(file, size);
  enter();
  int outcome = REAL(ftruncate)(file, size);
  if (!outcome) resize(file, size, 't');
  done();
  return outcome;
}

EXPORT int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

EXPORT int truncate(const char* path, off_t size) {
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return -1;
  int outcome = ftruncate(file, size);
  int kept = errno;
  close(file);
  errno = kept;
  return outcome;
}

EXPORT int truncate64(const char* path, off64_t size) { return truncate(path, size); }

EXPORT int fallocate(int file, int mode, off_t offset, off_t length) {
  if (!is_tracked(file)) return REAL(fallocate)(file, mode, offset, length);
  if (mode & ~FALLOC_FL_KEEP_SIZE) {  // RocksDB punches what it had reserved past a file's end: nothing is seen of it
    if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) || (uint64_t)offset < size_of(file))
      stop("fallocate changes what is in a file");
  }
  enter();
  int outcome = -1;
  if (!(mode & FALLOC_FL_PUNCH_HOLE) && full(tracked[file]))
    errno = ENOSPC;
  else
    outcome = REAL(fallocate)(file, mode, offset, length);
  if (!outcome && !mode && (uint64_t)(offset + length) > 0) resize(file, offset + length, 'e');
  done();
  return outcome;
}

EXPORT int fallocate64(int file, int mode, off64_t offset, off64_t length) {
  return fallocate(file, mode, offset, length);
}

EXPORT int posix_fallocate(int file, off_t offset, off_t length) {
  if (!is_tracked(file)) return REAL(posix_fallocate)(file, offset, length);
  return fallocate(file, 0, offset, length) ? errno : 0;
}

EXPORT int posix_fallocate64(int file, off64_t offset, off64_t length) { return posix_fallocate(file, offset, length); }

static int sync_one(int file) {
  enter();
  int fails = sync_fails(tracked[file]);
  put((Entry){.kind = fails ? 'x' : 's', .inode = inode_of(file)}, NULL, NULL, NULL, 0);
  done();
  if (fails) errno = EIO;
  return fails ? -1 : 0;
}

EXPORT int fsync(int file) { return is_tracked(file) ? sync_one(file) : REAL(fsync)(file); }
EXPORT int fdatasync(int file) { return is_tracked(file) ? sync_one(file) : REAL(fdatasync)(file); }

EXPORT int syncfs(int file) {
  if (!is_tracked(file)) return REAL(syncfs)(file);
  enter();
  put((Entry){.kind = 'a'}, NULL, NULL, NULL, 0);
  done();
  return 0;
}

EXPORT int msync(void* address, size_t length, int flags) { return REAL(msync)(address, length, flags); }

static void* map(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  if (is_tracked(file) && (protection & PROT_WRITE) && (flags & MAP_SHARED)) stop("a writable shared mapping");
  return REAL(mmap)(address, length, protection, flags, file, offset);
}

EXPORT void* mmap(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  return map(address, length, protection, flags, file, offset);
}

EXPORT void* mmap64(void* address, size_t length, int protection, int flags, int file, off64_t offset) {
  return map(address, length, protection, flags, file, offset);
}

static int rename_at(int at, const char* from, int at2, const char* to) {
  Place source = place_of(at, from), target = place_of(at2, to);
  if (source.tracked != target.tracked) stop("a rename across the root");
  if (!source.tracked) return REAL(renameat)(at, from, at2, to);
  enter();
  uint64_t inode = inode_at(source.path);
  int outcome = REAL(renameat)(at, from, at2, to);
  if (!outcome)
    put((Entry){.kind = 'r', .inode = inode, .folder = source.folder, .folder2 = target.folder}, name_of(&source),
        name_of(&target), NULL, 0);
  done();
  return outcome;
}

EXPORT int rename(const char* from, const char* to) { return rename_at(AT_FDCWD, from, AT_FDCWD, to); }
EXPORT int renameat(int at, const char* from, int at2, const char* to) { return rename_at(at, from, at2, to); }

static int link_at(int at, const char* from, int at2, const char* to, int flags) {
  Place source = place_of(at, from), target = place_of(at2, to);
  if (!target.tracked) return REAL(linkat)(at, from, at2, to, flags);
  enter();
  int outcome = -1;
  if (full(target.path))
    errno = ENOSPC;
  else
    outcome = REAL(linkat)(at, from, at2, to, flags);
  if (!outcome)
    put((Entry){.kind = 'l', .inode = inode_at(source.path), .folder = target.folder}, name_of(&target), NULL, NULL, 0);
  done();
  return outcome;
}

EXPORT int link(const char* from, const char* to) { return link_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
EXPORT int linkat(int at, const char* from, int at2, const char* to, int flags) {
  return link_at(at, from, at2, to, flags);
}

static int unlink_at(int at, const char* path, int flags) {
  Place place = place_of(at, path);
  if (!place.tracked) return REAL(unlinkat)(at, path, flags);
  enter();
  int outcome = REAL(unlinkat)(at, path, flags);
  if (!outcome) put((Entry){.kind = 'u', .folder = place.folder}, name_of(&place), NULL, NULL, 0);
  done();
  return outcome;
}

EXPORT int unlink(const char* path) { return unlink_at(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char* path) { return unlink_at(AT_FDCWD, path, AT_REMOVEDIR); }
EXPORT int unlinkat(int at, const char* path, int flags) { return unlink_at(at, path, flags); }

static int mkdir_at(int at, const char* path, mode_t mode) {
  Place place = place_of(at, path);
  if (!place.tracked) return REAL(mkdirat)(at, path, mode);
  enter();
  int outcome = -1;
  if (full(place.path))
    errno = ENOSPC;
  else
    outcome = REAL(mkdirat)(at, path, mode);
  if (!outcome)
    put((Entry){.kind = 'm', .inode = inode_at(place.path), .folder = place.folder, .offset = mode_at(place.path)},
        name_of(&place), NULL, NULL, 0);
  done();
  return outcome;
}

EXPORT int mkdir(const char* path, mode_t mode) { return mkdir_at(AT_FDCWD, path, mode); }
EXPORT int mkdirat(int at, const char* path, mode_t mode) { return mkdir_at(at, path, mode); }

EXPORT int symlink(const char* text, const char* path) {
  if (place_of(AT_FDCWD, path).tracked) stop("a symbolic link");
  return REAL(symlink)(text, path);
}

EXPORT ssize_t copy_file_range(int from, off64_t* at, int to, off64_t* at2, size_t length, unsigned flags) {
  if (is_tracked(to)) stop("copy_file_range");
  return REAL(copy_file_range)(from, at, to, at2, length, flags);
}

EXPORT ssize_t sendfile64(int to, int from, off64_t* offset, size_t count) {
  ssize_t (*send)(int, int, off64_t*, size_t) = (ssize_t (*)(int, int, off64_t*, size_t))real("sendfile64");
  if (is_tracked(to)) stop("sendfile");
  return send(to, from, offset, count);
}
