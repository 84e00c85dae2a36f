# Sourced by quickstart.sh and regression/run.sh. atoll_setup [--tests] installs what is missing, by Debian/Ubuntu
# package name, when this user may: as root, or through sudo. Elsewhere it says what INSTALL says. Returns non-zero
# only when something that is needed to build or run is missing and could not be installed.

ATOLL_BUILD_PACKAGES="cmake ninja-build gcc g++ pkg-config libopenmpi-dev openmpi-bin libhdf5-openmpi-dev hdf5-tools
  libhwloc-dev libpapi-dev libdnnl-dev libopenblas-openmp-dev libyaml-dev libxxhash-dev libjansson-dev libpcre2-dev
  libisl-dev libcmocka-dev coinor-libcbc-dev libxsmm-dev gnuplot-nox"
# Only tests want these; without them the tests concerned skip and say why.
ATOLL_TEST_PACKAGES="python3-h5py python3-numpy slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix2
  iproute2 librsvg2-bin"

# The names among the arguments that dpkg does not have installed.
atoll_missing_packages() {
  local name missing=""
  for name in "$@"; do
    case $(dpkg-query -W -f='${Status}' "$name" 2>/dev/null) in
      *" installed") ;;
      *) missing="$missing $name" ;;
    esac
  done
  printf '%s' "${missing# }"
}

# Prints how to become root, or nothing and 1. A password is asked for only where somebody can type it.
atoll_become_root() {
  if [ "$(id -u)" = 0 ]; then
    printf 'env'
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    printf 'sudo -n env'
  elif command -v sudo >/dev/null 2>&1 && [ -t 0 ] && [ -z "${CI:-}" ]; then
    printf 'sudo env'
  else
    return 1
  fi
}

# atoll_apt AS_ROOT NAMES...: fresh lists first, because images come with none or with stale ones.
atoll_apt() {
  local as_root=$1 log
  shift
  log=$(mktemp)
  if {
    $as_root DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 update ||
      echo "apt-get update failed; trying with the lists at hand"
    $as_root DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 \
      install --no-install-recommends "$@"
  } >"$log" 2>&1 </dev/null; then
    rm -f "$log"
    return 0
  fi
  tail -n 15 "$log"
  rm -f "$log"
  return 1
}

atoll_setup() {
  local tests="${1:-}" need want as_root command absent=""
  if command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    need=$(atoll_missing_packages $ATOLL_BUILD_PACKAGES)
    want=""
    # shellcheck disable=SC2086
    [ "$tests" != --tests ] || want=$(atoll_missing_packages $ATOLL_TEST_PACKAGES)
    if [ -z "$need$want" ]; then
      echo "all packages are installed"
    elif as_root=$(atoll_become_root); then
      echo "installing: $need $want"
      # shellcheck disable=SC2086
      if ! atoll_apt "$as_root" $need $want; then
        # One package that this release lacks must not take the others with it.
        # shellcheck disable=SC2086
        [ -z "$need" ] || atoll_apt "$as_root" $need || echo "not every package could be installed; the build will tell"
        # shellcheck disable=SC2086
        for name in $want; do
          atoll_apt "$as_root" "$name" || echo "without $name: the tests that use it skip"
        done
      fi
    else
      [ -z "$need" ] || printf 'missing, and this user may not install them:\n  sudo apt-get install %s\n' "$need"
      [ -z "$want" ] || printf 'tests that use these will skip:\n  sudo apt-get install %s\n' "$want"
    fi
  else
    echo "not a Debian or Ubuntu system: nothing is installed here; INSTALL lists the RHEL and Spack names"
  fi
  # The libraries are checked by configure, in one message; these must be there to get so far.
  for command in cmake ninja cc pkg-config mpicc mpirun; do
    command -v "$command" >/dev/null 2>&1 || absent="$absent $command"
  done
  if [ -n "$absent" ]; then
    printf 'not found in PATH:%s\nSee INSTALL, "Prerequisites" (on RHEL: module load mpi/openmpi-x86_64).\n' "$absent"
    return 1
  fi
}

# Fails when cmake is older than the presets need, which is the case on Ubuntu 22.04.
atoll_check_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  if [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" != 3.25 ]; then
    printf 'cmake %s is too old, 3.25 is needed; INSTALL, "Troubleshooting", says how to get it\n' "$version"
    return 1
  fi
}
