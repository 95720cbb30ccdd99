#include "recover.h"
