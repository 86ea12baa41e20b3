// What the calls of `calls.c` know of the disk: which files are watched, what is journalled, when a fault comes.
#ifndef AFFIDAVIT_FAULTS_JOURNAL_H_
#define AFFIDAVIT_FAULTS_JOURNAL_H_

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 65536
#define EXPORT __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(&name))real(#name))

typedef struct {
  char kind;
  char padding[7];
  uint64_t inode, folder, folder2, offset;
  uint32_t name_length, name2_length, data_length, padding2;
} Entry;

typedef struct {
  char path[PATH_MAX];  // its folder resolved
  const char* name;     // the last part
  uint64_t folder;
  int tracked;
} Place;

extern char* tracked[FILES];  // by descriptor: the path below the root, or NULL

// libc's own function of this name.
void* real(const char* name);
// End the process: something is done to the disk that is not modelled.
void stop(const char* words);
// Where a path leads.
Place place_of(int at, const char* given);
const char* name_of(const Place* place);
int is_tracked(int file);
// 0 for what is not there.
uint64_t inode_at(const char* path);
uint64_t inode_of(int file);
uint64_t mode_at(const char* path);
uint64_t size_of(int file);
// The moment before a change, which may be the process's last: the lock is held from here to `done`.
void enter(void);
void done(void);
void put(Entry entry, const char* name, const char* name2, const struct iovec* data, int parts);
// Whether the disk is full for this path.
int full(const char* path);
// How much of `length` bytes the disk takes now; -1 for none, with errno.
ssize_t room(const char* path, size_t length);
// Whether this sync is the one that fails.
int sync_fails(const char* path);

#endif  // AFFIDAVIT_FAULTS_JOURNAL_H_
