/* gradus/gradus.h: all of Gradus. Small programs include this; large ones may include the parts
 * they use. */
#ifndef GRADUS_GRADUS_H
#define GRADUS_GRADUS_H

#include <gradus/abi.h>
#include <gradus/augment.h>
#include <gradus/autograd.h>
#include <gradus/base.h>
#include <gradus/chart.h>
#include <gradus/checkpoint.h>
#include <gradus/compile.h>
#include <gradus/conv.h>
#include <gradus/data.h>
#include <gradus/dlpack.h>
#include <gradus/foreign.h>
#include <gradus/gguf.h>
#include <gradus/io.h>
#include <gradus/language.h>
#include <gradus/layers.h>
#include <gradus/log.h>
#include <gradus/loss.h>
#include <gradus/metrics.h>
#include <gradus/model.h>
#include <gradus/nn.h>
#include <gradus/norm.h>
#include <gradus/ops.h>
#include <gradus/optim.h>
#include <gradus/options.h>
#include <gradus/precision.h>
#include <gradus/scalar.h>
#include <gradus/schedule.h>
#include <gradus/sequence.h>
#include <gradus/table.h>
#include <gradus/tensor.h>
#include <gradus/text.h>
#include <gradus/train.h>
#include <gradus/vmap.h>

#endif
