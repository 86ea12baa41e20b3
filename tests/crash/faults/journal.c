// Which files are watched, what is journalled, when a fault comes.

#include "journal.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int journal = -1;
static long changes, cut_at, eio_at, eio_seen;
static char eio_text[256];
static unsigned long long random_state;
static const char* full_path;
static int full_began;
char* tracked[FILES];

void* real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (!found) abort();
  return found;
}

void stop(const char* words) {
  dprintf(2, "faults: %s\n", words);
  abort();
}

__attribute__((constructor)) static void begin(void) {
  const char* folder = getenv("FAULTS_ROOT");
  const char* path = getenv("FAULTS_JOURNAL");
  if (!folder || !path || !realpath(folder, root)) return;
  root_length = strlen(root);
  journal = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (journal < 0) stop("the journal does not open");
  const char* text = getenv("FAULTS_CUT");
  cut_at = text ? atol(text) : 0;
  text = getenv("FAULTS_SHORT");
  random_state = text ? 2 * strtoull(text, NULL, 10) + 1 : 0;
  full_path = getenv("FAULTS_FULL");
  text = getenv("FAULTS_EIO");
  const char* colon = text ? strrchr(text, ':') : NULL;
  if (colon) {
    snprintf(eio_text, sizeof eio_text, "%.*s", (int)(colon - text), text);
    eio_at = atol(colon + 1);
  }
}

static int below_root(const char* path) {
  return journal >= 0 && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

Place place_of(int at, const char* given) {
  Place place = {.tracked = 0};
  if (journal < 0) return place;
  if (given[0] == '/' && !strstr(given, "..") && !below_root(given)) return place;
  char whole[2 * PATH_MAX], folder[PATH_MAX];
  if (given[0] == '/' || at == AT_FDCWD) {
    snprintf(whole, sizeof whole, "%s", given);
  } else {
    char link[64], base[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = readlink(link, base, sizeof base - 1);
    if (length < 0) return place;
    base[length] = 0;
    snprintf(whole, sizeof whole, "%s/%s", base, given);
  }
  for (size_t end = strlen(whole); end > 1 && whole[end - 1] == '/'; end--) whole[end - 1] = 0;
  char* slash = strrchr(whole, '/');
  const char* name = slash ? slash + 1 : whole;
  if (slash) *slash = 0;
  if (!realpath(slash ? (*whole ? whole : "/") : ".", folder)) return place;
  struct stat status;
  if (strlen(folder) + strlen(name) + 2 > sizeof place.path || stat(folder, &status)) return place;
  snprintf(place.path, sizeof place.path, "%s/%s", folder, name);
  place.folder = status.st_ino;
  place.tracked = below_root(place.path);
  return place;
}

const char* name_of(const Place* place) { return strrchr(place->path, '/') + 1; }

uint64_t inode_at(const char* path) {
  struct stat status;
  return lstat(path, &status) ? 0 : status.st_ino;
}

uint64_t inode_of(int file) {
  struct stat status;
  return fstat(file, &status) ? 0 : status.st_ino;
}

uint64_t mode_at(const char* path) {
  struct stat status;
  return lstat(path, &status) ? 0 : status.st_mode & 07777;
}

uint64_t size_of(int file) {
  struct stat status;
  return fstat(file, &status) ? 0 : (uint64_t)status.st_size;
}

void enter(void) {
  pthread_mutex_lock(&lock);
  if (++changes == cut_at) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
}

void done(void) {
  int kept = errno;
  pthread_mutex_unlock(&lock);
  errno = kept;
}

void put(Entry entry, const char* name, const char* name2, const struct iovec* data, int parts) {
  int kept = errno;
  entry.name_length = name ? (uint32_t)strlen(name) : 0;
  entry.name2_length = name2 ? (uint32_t)strlen(name2) : 0;
  struct iovec vectors[3 + IOV_MAX / 2] = {
      {&entry, sizeof entry}, {(void*)name, entry.name_length}, {(void*)name2, entry.name2_length}};
  size_t left = entry.data_length;
  int count = 3;
  for (int part = 0; part < parts && left; part++, count++) {
    size_t length = data[part].iov_len < left ? data[part].iov_len : left;
    vectors[count] = (struct iovec){data[part].iov_base, length};
    left -= length;
  }
  size_t whole = sizeof entry + entry.name_length + entry.name2_length + entry.data_length;
  if (REAL(writev)(journal, vectors, count) != (ssize_t)whole) stop("the journal takes no more");
  errno = kept;
}

int full(const char* path) {
  if (!full_path) return 0;
  int file = REAL(open)(full_path, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    full_began = 0;
    return 0;
  }
  char text[256];
  ssize_t length = read(file, text, sizeof text - 1);
  REAL(close)(file);
  text[length > 0 ? length : 0] = 0;
  return strstr(path, text) != NULL;
}

ssize_t room(const char* path, size_t length) {
  if (full(path)) {
    if (full_began++ || length < 2) {
      errno = ENOSPC;
      return -1;
    }
    return (ssize_t)(length / 2);
  }
  if (random_state && length > 1) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    if ((random_state >> 33) % 4 == 0) return 1 + (ssize_t)((random_state >> 35) % (length - 1));
  }
  return (ssize_t)length;
}

int is_tracked(int file) { return file >= 0 && file < FILES && tracked[file]; }

int sync_fails(const char* path) { return eio_at && strstr(path, eio_text) && ++eio_seen == eio_at; }
